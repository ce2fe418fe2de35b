"""Lists of whole numbers in OTLP protobuf, such as token ids, read at once and not one message a number.

Invariant: what `read` gives is what reading each value gives; where it gives None, each has to be read.

An AnyValue that is a whole number is on the wire a length, the tag of `int_value` and the number. A field of repeated
numbers may come like that too, in any number of pieces with a length before each, so that the bytes of an ArrayValue
also decode as one list: tag, number, tag, number …

Source of the format: https://protobuf.dev/programming-guides/encoding/#packed
"""

from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import ArrayValue

_INT_TAG: Final = 3 << 3
_FEW: Final = 8
"""Fewer values are read faster one by one."""


class _Repeated(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> list[int]: ...


class _Numbers(Protocol):
    @property
    def values(self) -> _Repeated: ...


class _NumbersType(Protocol):
    def FromString(self, data: bytes, /) -> _Numbers: ...  # noqa: N802 # protobuf's name


class WholeNumbers:
    """Reads lists of whole numbers."""

    def __init__(self) -> None:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 # only protobuf dumps need it, here and below
        from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415

        self._type = _numbers_type()
        self._error = DecodeError
        self._unknown = UnknownFieldSet

    def read(self, array: "ArrayValue") -> list[int] | None:
        """The numbers of a list; None when it is short or holds anything else."""
        count = len(array.values)
        if count < _FEW or array.values[0].WhichOneof("value") != "int_value":
            return None
        if len(self._unknown(array)):  # a field 1 that is no message would be taken for a number
            return None
        try:
            flat = self._type.FromString(array.SerializeToString()).values
        except self._error:
            return None
        # Encoded anew, a value has the tag of a whole number once or not at all, whatever unknown fields it has. So the
        # first one that has anything else puts it in the place of a tag, and one that is empty makes too few of them.
        return flat[1::2] if len(flat) == 2 * count and flat[::2].count(_INT_TAG) == count else None


def _numbers_type() -> _NumbersType:
    """The type of `message Numbers { repeated int64 values = 1; }`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    file = descriptor_pb2.FileDescriptorProto(name="art_otel/numbers.proto", package="art_otel", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    numbers = file.message_type.add(name="Numbers")
    numbers.field.add(name="values", number=1, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return cast(_NumbersType, message_factory.GetMessageClass(pool.FindMessageTypeByName("art_otel.Numbers")))
