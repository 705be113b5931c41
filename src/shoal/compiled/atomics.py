"""What threads in machine code need to talk to each other: atomic words, a pause, and arrays at another address.

Importing this module imports Numba.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_HAS_PAUSE = platform.machine() in ("x86_64", "AMD64")


def _word(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to array[index], without a check."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def load(typing: Any, words: Any, index: Any) -> Any:
    """words[index] as it is in memory now; what was written before it is seen after it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(context, builder, signature.args[0], *arguments), "seq_cst", 8)

    return types.int64(words, types.int64), codegen


@intrinsic
def store(typing: Any, words: Any, index: Any, value: Any) -> Any:
    """words[index] = value, once all that was written before can be seen."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = _word(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], word, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), codegen


@intrinsic
def swap(typing: Any, words: Any, index: Any, old: Any, new: Any) -> Any:
    """words[index] = new if it is `old`, in one go; whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = _word(context, builder, signature.args[0], *arguments[:2])
        found = builder.cmpxchg(word, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(words, types.int64, types.int64, types.int64), codegen


@intrinsic
def add(typing: Any, words: Any, index: Any, value: Any) -> Any:
    """words[index] += value, in one go; what it was before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = _word(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("add", word, arguments[2], "seq_cst")

    return types.int64(words, types.int64, types.int64), codegen


@intrinsic
def pause(typing: Any) -> Any:
    """Say that this is a loop that waits: some 50 ns that leave the core's other half alone."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _HAS_PAUSE:
            nothing = ir.FunctionType(ir.VoidType(), [])
            function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, nothing, "llvm.x86.sse2.pause"
            )
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def moved(typing: Any, array: Any, address: Any) -> Any:
    """An array like this one at another address. Nobody keeps its memory alive."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = context.make_array(signature.args[0])(context, builder, arguments[0])
        value.data = builder.inttoptr(arguments[1], value.data.type)
        return value._getvalue()

    return array(array, types.int64), codegen
