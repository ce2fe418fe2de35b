"""Saved: the latest verification of a dataset, in a file beside the dataset.

Invariant: the file `_verify.json` in a dataset's folder is complete or missing, and replaces only a file of ours. It
has the name of the model's folder, but no path of this machine. Readers of Parquet folders skip it, because its name
begins with an underscore.
"""

import time
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from art_otel import storage
from art_otel.errors import StoreError
from art_otel.store import SUFFIX, read_manifest
from art_otel.store.commit import not_ours
from art_otel.verification.verify import Precision, Verification
from art_otel.version import __version__

VERIFICATION_NAME: Final = "_verify.json"


class SavedVerification(msgspec.Struct, frozen=True, kw_only=True):
    """A verification, and when (nanoseconds since the epoch) and how it was made.

    `model` is the name of the model's folder or of the model on the hub; it computed in `dtype`. `policy_version` is
    the only version whose rollouts were compared, None for all versions. `dataset_run` is the conversion that wrote the
    dataset, None without a manifest. `art_otel` is the version that wrote the file.
    """

    art_otel: str
    verified_at: int
    model: str
    dtype: Precision
    policy_version: str | None
    dataset_run: str | None
    result: Verification

    def to_json(self) -> dict[str, Any]:
        """The record as one object, with the figures at its top and `holds` beside them."""
        return {
            **{name: value for name, value in msgspec.to_builtins(self).items() if name != "result"},
            "holds": self.result.holds,
            **msgspec.to_builtins(self.result),
        }


def describe(
    result: Verification, *, dataset: str, model: str, dtype: Precision, policy_version: str | None
) -> SavedVerification:
    """Make the record of a verification that was made now."""
    folder = folder_of(dataset)
    manifest = None if folder is None else read_manifest(folder)
    return SavedVerification(
        art_otel=__version__,
        verified_at=time.time_ns(),
        model=Path(model).resolve().name if Path(model).is_dir() else model,
        dtype=dtype,
        policy_version=policy_version,
        dataset_run=None if manifest is None else manifest.run,
        result=result,
    )


def folder_of(dataset: str) -> str | None:
    """The folder or URL of a dataset; None for a file or a glob."""
    if storage.is_url(dataset):
        return None if dataset.partition("?")[0].endswith(SUFFIX) else dataset
    return dataset if Path(dataset).is_dir() else None


def save(saved: SavedVerification, folder: str) -> None:
    """Write the record beside the dataset. Raises UsageError for a file that is not ours, OSError and StorageError."""
    location = storage.join(folder, VERIFICATION_NAME)
    if storage.size_of(location) is not None:
        try:
            before: object = msgspec.json.decode(storage.read(location))
        except (msgspec.DecodeError, UnicodeDecodeError):
            before = None
        if not isinstance(before, dict) or "art_otel" not in before:
            raise not_ours(storage.shown(location))
    storage.write(location, msgspec.json.format(msgspec.json.encode(saved.to_json()), indent=2) + b"\n")


def read_saved(folder: str) -> SavedVerification | None:
    """Read the record beside a dataset; None if there is none. Raises StoreError if it cannot be read."""
    location = storage.join(folder, VERIFICATION_NAME)
    try:
        if storage.size_of(location) is None:
            return None
        raw: object = msgspec.json.decode(storage.read(location))
        members = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
        return msgspec.convert({**members, "result": raw}, SavedVerification)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise StoreError(f"{storage.shown(location)}: {error}; `art-otel verify` writes it again") from error
