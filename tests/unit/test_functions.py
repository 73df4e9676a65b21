"""What is decompressed reaches Spark in arrays that stay small."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from sparkinesis import functions
from sparkinesis.payloads import ZLIB


def test_an_array_is_passed_on_once_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "BYTES_OF_ARRAY", 2000)
    values = [b"0" * 1000] * 5 + [None, b"1" * 2500, None]
    column = pa.array([value and zlib.compress(value) for value in values])
    arrays = [*functions.decompress(iter([column, column[:0], column[:1]]), ZLIB)]
    assert [len(array) for array in arrays] == [2, 2, 3, 1, 1]
    assert pa.concat_arrays(arrays).to_pylist() == [*values, values[0]]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_an_array_keeps_its_type(type_: pa.DataType) -> None:
    column = pa.array([zlib.compress(b"late"), b"?"], type_)
    [array] = functions.decompress(iter([column]), ZLIB)
    assert array == pa.array([b"late", None], type_)
