"""Several processes that train one policy together, started by `torchrun`: what they tell each other.

Each rank steps its own share of the environments; rank r of K has those from r * N / K on, with the seeds that they
have in one process. All ranks draw the same minibatches from the rows of all, each works on its own of these rows, and
one all-reduce adds gradients and figures up. So the update is that of one process within rounding, whatever K is. A
`Team` of one process exchanges nothing.
"""

from __future__ import annotations

import ctypes
import datetime
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from shoal.core.arrays import Array
from shoal.core.errors import RankFailed
from shoal.core.machine import ranks_here
from shoal.learn.rollout import Interrupted, Rollout, Seen
from shoal.learn.team import SideBySide, Team
from shoal.runs.tensors import pack, unpack_bytes
from shoal.vector.infos import Numbers

_FORMED = itertools.count()  # teams of this process, one for each training
_AT_ONCE = 2048  # bytes of every rank in the first exchange of what they tell each other
_FIND_OUT_S = 3.0  # how long the others have to say that they are still there


class Torchrun(Team):
    """One rank of several."""

    def __init__(self, device: str, timeout_s: float) -> None:
        timeout = datetime.timedelta(seconds=timeout_s)
        if sys.platform == "linux":  # torchrun is gone, also by kill -9: PR_SET_PDEATHSIG asks this rank to stop
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)
        _stay_on_this_machine()
        store, self.rank, self.size = next(rendezvous("env://", timeout=timeout))
        store.set_timeout(timeout)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = PrefixStore(f"shoal/{attempt}/{next(_FORMED)}", store)
        backend = "gloo"
        if device == "cuda":
            local = int(os.environ.get("LOCAL_RANK", "0"))
            torch.cuda.set_device(local % torch.cuda.device_count())
            if ranks_here() <= torch.cuda.device_count():  # else several share one, which NCCL refuses
                backend = "cpu:gloo,cuda:nccl"
        self._on_gpu = backend != "gloo"
        self._ends_all: Exception | None = None  # of which every rank knows
        dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=timeout)

    # -- exchanges -----------------------------------------------------------------------------

    def gather(self, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """As safetensors: nothing is pickled."""
        return [unpack_bytes(part) for part in self._gather_bytes(pack(arrays))]

    def hear(self, data: Any) -> list[Any]:
        return [json.loads(part) for part in self._gather_bytes(json.dumps(data).encode())]

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        """Of every rank, in one exchange where nobody has much to say: lengths come first, the rest after it if need
        be."""
        sent = len(data).to_bytes(8, "little") + data
        with self._reaching():
            parts = self._gather_padded(sent[:_AT_ONCE], _AT_ONCE)
            sizes = [8 + int.from_bytes(part[:8], "little") for part in parts]
            if max(sizes) > _AT_ONCE:
                rest = self._gather_padded(sent[_AT_ONCE:], max(sizes) - _AT_ONCE)
                parts = [part + more for part, more in zip(parts, rest, strict=True)]
        return [part[8:size] for part, size in zip(parts, sizes, strict=True)]

    def _gather_padded(self, data: bytes, size: int) -> list[bytes]:
        own = torch.frombuffer(bytearray(data.ljust(size, b"\0")), dtype=torch.uint8)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(rows, own)
        return [row.numpy().tobytes() for row in rows]

    def lead(self, make: Callable[[], tuple[Mapping[str, Array], Any]]) -> tuple[dict[str, Array], Any]:
        if not self.leads:
            told, arrays = self._broadcast(b""), self._broadcast(b"")
            data = json.loads(told)
            if "error" in data:
                raise RankFailed(f"rank 0: {data['error']}", said_by=0)
            return unpack_bytes(arrays), data["data"]
        try:
            own, data = make()
        except BaseException as error:
            with suppress(RankFailed):
                self._broadcast(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
                self._broadcast(b"")
            raise
        self._broadcast(json.dumps({"data": data}).encode())
        self._broadcast(pack(own))
        return dict(own), data

    def _broadcast(self, data: bytes) -> bytes:
        with self._reaching():
            size = torch.tensor([len(data)])
            dist.broadcast(size, 0)
            content = torch.zeros(int(size), dtype=torch.uint8)
            if self.leads and data:
                content[:] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def decides(self, wish: bool) -> bool:
        if self.broken:
            return wish and self.leads
        with self._reaching():
            wished = torch.tensor([int(wish)])
            dist.broadcast(wished, 0)
        return bool(wished)

    def side_by_side(self, rollout: Rollout, first: int, last: int) -> Seen:
        names = ("rewards", "ended", "valid", "broken", "lost")
        parts = self.gather({name: getattr(rollout, name)[first:last] for name in names})
        rows = {name: np.concatenate([part[name] for part in parts], axis=1) for name in names}
        if (first, last) != (0, rollout.steps):  # of an update that takes several epochs
            whole = {name: np.zeros((rollout.steps, array.shape[1]), array.dtype) for name, array in rows.items()}
            for name, array in rows.items():
                whole[name][first:last] = array
            rows = whole
        return SideBySide(**rows, said=self._said(rollout, first, last))

    def _said(self, rollout: Rollout, first: int, last: int) -> list[tuple[int, Array, Numbers]]:
        """What episodes of all ranks said at their end, by their environments' numbers among all."""
        own = [
            (t, (rows + self.rank * rollout.num_envs).tolist(), {
                name: (there.tolist(), values.tolist()) for name, (there, values) in numbers.items()
            })
            for t, rows, numbers in rollout.said if first <= t < last
        ]  # fmt: skip
        return [
            (t, np.array(rows), {name: (np.array(there), np.array(values)) for name, (there, values) in told.items()})
            for part in self.hear(own)
            for t, rows, told in part
        ]

    @contextmanager
    def as_one(self) -> Iterator[None]:
        trouble: Exception | None = None
        try:
            yield
        except Exception as error:
            trouble = error
        mine = "" if trouble is None else "stop" if isinstance(trouble, Interrupted) else _in_words(trouble)
        try:
            told = self.hear(mine)
        except RankFailed:
            if trouble is None:
                raise
        if trouble is not None:
            self._ends_all = trouble
            raise trouble
        failed = [(rank, text) for rank, text in enumerate(told) if text not in ("", "stop")]
        if failed:
            rank, text = failed[0]
            raise RankFailed(f"rank {rank} of {self.size} failed: {text}", said_by=0)
        if "stop" in told:
            raise Interrupted

    def pooled(self, count: float, mean: Array, var: Array) -> tuple[float, Array, Array]:
        parts = self.gather({"count": np.array(count, np.float64), "mean": np.asarray(mean), "var": np.asarray(var)})
        total = float(sum(part["count"] for part in parts))
        if total == 0:
            return 0.0, mean, var
        whole = np.asarray(sum(part["count"] * part["mean"] for part in parts)) / total
        spread = sum(part["count"] * (part["var"] + (part["mean"] - whole) ** 2) for part in parts)
        return total, whole, np.asarray(spread) / total

    def total(self, values: Sequence[float]) -> list[float]:
        with self._reaching():
            sums = torch.tensor(list(values), dtype=torch.float64)
            dist.all_reduce(sums)
        return [float(value) for value in sums]

    def spread(self, network: nn.Module) -> None:
        with self._reaching(), torch.no_grad():
            for tensor in network.state_dict().values():
                here = tensor if self._on_gpu and tensor.is_cuda else tensor.cpu().contiguous()
                dist.broadcast(here, 0)
                tensor.copy_(here)

    def average(
        self, parameters: Sequence[nn.Parameter], figures: dict[str, Tensor], share: float
    ) -> dict[str, Tensor]:
        device = parameters[0].device
        grads = [parameter.grad for parameter in parameters]
        told = torch.stack([value.detach().to(device, torch.float32) for value in figures.values()])
        has = torch.tensor([float(grad is not None) for grad in grads], device=device)
        flat = [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, grads, strict=True)]
        # A rank without any rows of this minibatch has figures that are no numbers; 0 * NaN would be one.
        whole = torch.cat([*flat, told, has])
        whole = whole.mul_(share) if share > 0 else whole.zero_()
        with self._reaching():
            here = whole if self._on_gpu or not whole.is_cuda else whole.cpu()
            dist.all_reduce(here)
            whole = here.to(device)
        *summed, told, has = torch.split(whole, [*map(len, flat), len(told), len(has)])
        for parameter, grad, learned in zip(parameters, summed, has.tolist(), strict=True):
            parameter.grad = grad.view_as(parameter) if learned > 0 else None
        return dict(zip(figures, told, strict=True))

    def figures(self, values: dict[str, Any]) -> dict[str, Any]:
        every = self.hear(values)
        found: dict[str, Any] = {}
        for name in dict.fromkeys(name for part in every for name in part):
            there = [part[name] for part in every if part.get(name) is not None]
            numbers = all(isinstance(value, int | float) for value in there)
            found[name] = sum(there) / len(there) if there and numbers else there[0] if there else None
        return found

    # -- when it goes wrong --------------------------------------------------------------------

    def ends(self, error: Exception) -> None:
        if not isinstance(error, RankFailed) and error is not self._ends_all:
            self.broken = True

    def leave(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, RankFailed):
            with suppress(RuntimeError):
                self._store.set(f"left/{self.rank}", _in_words(error))
        with suppress(RuntimeError, ValueError):
            if error is None and not self.broken:
                dist.barrier()
            dist.destroy_process_group()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        if self.broken:
            raise RankFailed("a rank of this training is gone", said_by=0)
        try:
            yield
        except RuntimeError as error:
            self.broken = True
            raise self._who(error) from error

    def _who(self, error: RuntimeError) -> RankFailed:
        """Who is gone? Whoever is still there says so within a few seconds; torchrun keeps what they say."""
        reasons: dict[int, str] = {}
        here = {self.rank}
        try:
            self._store.set(f"here/{self.rank}", "1")
            until = time.monotonic() + _FIND_OUT_S
            while time.monotonic() < until and len(reasons) + len(here) < self.size:
                for rank in set(range(self.size)) - here - set(reasons):
                    if self._store.check([f"left/{rank}"]):
                        reasons[rank] = f"rank {rank} of {self.size} failed: {self._store.get(f'left/{rank}').decode()}"
                    elif self._store.check([f"here/{rank}"]):
                        here.add(rank)
                time.sleep(0.05)
        except RuntimeError:
            return RankFailed(
                f"torchrun, which knows the ranks, cannot be reached any more ({error})", said_by=self.rank
            )
        for rank in set(range(self.size)) - here - set(reasons):
            reasons[rank] = f"rank {rank} of {self.size} died or does not answer any more"
        if not reasons:
            return RankFailed(f"the ranks cannot reach each other any more: {error}", said_by=min(here))
        return RankFailed("; ".join(reasons[rank] for rank in sorted(reasons)), said_by=min(here))


def team_of(device: str = "cpu", timeout_s: float = 1800.0) -> Team:
    """The team that this process was started in."""
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in os.environ for name in wanted) or os.environ["WORLD_SIZE"] == "1":
        return Team()
    if dist.is_initialized():
        raise ValueError(
            "torch.distributed is in use already: shoal.train joins the ranks itself, and leaves them again"
        )
    return Torchrun(device, timeout_s)


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:20_000]


def _stay_on_this_machine() -> None:
    """Where all ranks are on one machine nothing is to listen beyond it."""
    if os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE"):
        loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        if loopback:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
