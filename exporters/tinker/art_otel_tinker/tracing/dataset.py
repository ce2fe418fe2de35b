"""TracedDataset: a dataset whose builders are traced, and the builder of such datasets.

Invariant: batches have the shape that those of the dataset have; every group builder in them is traced.

Source: `RLDataset` and `RLDatasetBuilder` of `tinker_cookbook.rl.types`, and `CompositeDataset` of
`tinker_cookbook.distillation.datasets`, whose batches are builders and the numbers of their datasets, 0.6.1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from art_otel_tinker.tracing.builder import trace_builder
from art_otel_tinker.tracing.expected import expect
from art_otel_tinker.tracing.proxy import Proxy

_Dataset = TypeVar("_Dataset")
_DatasetBuilder = TypeVar("_DatasetBuilder")

_TRAIN: Final = "train"
_TEST: Final = "test"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sampled:
    """What is known of all rollouts of a dataset before they run."""

    model: str | None
    policy_version: str | Callable[[], str | None] | None


class _TracedDataset(Proxy):
    def __init__(self, dataset: Any, split: str, sampled: _Sampled) -> None:  # noqa: ANN401 # RLDataset
        super().__init__(dataset)
        self._self_split = split
        self._self_sampled = sampled

    def get_batch(self, index: int) -> Any:  # noqa: ANN401 # as RLDataset, or as CompositeDataset
        return self._trace(self.__wrapped__.get_batch(index), index)

    def _trace(self, entry: Any, index: int) -> Any:  # noqa: ANN401 # as get_batch
        if isinstance(entry, list | tuple):
            items = cast(list[Any] | tuple[Any, ...], entry)
            traced = [self._trace(one, index) for one in items]
            return traced if isinstance(items, list) else tuple(traced)
        if not hasattr(entry, "make_envs"):
            return entry
        sampled, split = self._self_sampled, self._self_split
        step = index if split == _TRAIN else None
        return trace_builder(
            entry, split=split, training_step=step, model=sampled.model, policy_version=sampled.policy_version
        )


class _TracedDatasetBuilder(Proxy):
    def __init__(self, builder: Any, sampled: _Sampled) -> None:  # noqa: ANN401 # RLDatasetBuilder
        super().__init__(builder)
        self._self_sampled = sampled

    async def __call__(self) -> tuple[Any, Any]:
        train, test = await self.__wrapped__()
        traced = [
            None if dataset is None else _TracedDataset(dataset, split, self._self_sampled)
            for dataset, split in ((train, _TRAIN), (test, _TEST))
        ]
        return traced[0], traced[1]

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 # as object
        return _TracedDatasetBuilder, (self.__wrapped__, self._self_sampled)


def trace_dataset(
    dataset: _Dataset,
    *,
    split: str = _TRAIN,
    model: str | None = None,
    policy_version: str | Callable[[], str | None] | None = None,
    enabled: bool = True,
) -> _Dataset:
    """The dataset with traced builders, a CompositeDataset too. Of the split `train` a batch's index is the step.

    Raises UsageError for what is no dataset.
    """
    expect(dataset, "RLDataset (trace_dataset_builder takes the builder of one)", "get_batch")
    if not enabled or isinstance(dataset, _TracedDataset):
        return dataset
    return cast(_Dataset, _TracedDataset(dataset, split, _Sampled(model=model, policy_version=policy_version)))


def trace_dataset_builder(
    builder: _DatasetBuilder,
    *,
    model: str | None = None,
    policy_version: str | Callable[[], str | None] | None = None,
    enabled: bool = True,
) -> _DatasetBuilder:
    """The builder of traced datasets, of the splits `train` and `test`, for `rl.train.Config(dataset_builder=…)`.

    Raises UsageError for what is no dataset builder.
    """
    expect(builder, "RLDatasetBuilder", "__call__")
    if not enabled or isinstance(builder, _TracedDatasetBuilder):
        return builder
    return cast(_DatasetBuilder, _TracedDatasetBuilder(builder, _Sampled(model=model, policy_version=policy_version)))
