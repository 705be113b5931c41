"""Which parts of an observation are pictures, and the convolutional networks that see them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from shoal.core.arrays import Layout
from shoal.core.pictures import LEAST, channels_last, is_picture
from shoal.learn.distributions import ActionKind
from shoal.learn.networks import ActorCritic, PolicyAndValue

Encoder = Literal["auto", "nature", "impala-small", "flat"]
NATURE_SIDE = 36  # pixels: the three convolutions of "nature" leave nothing of a smaller picture
_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # (channels, kernel, stride): Mnih et al. 2015
_NATURE_WIDTH, _IMPALA_WIDTH = 512, 256
FLOATS = 1 << 21  # numbers of pictures that are there as floats at once
_IMPALA = (16, 32, 32)  # channels of each stage: Espeholt et al. 2018, one residual block each where they have two


@dataclass(frozen=True)
class Picture:
    """A leaf of an observation, uint8, as a convolution takes it: `[C, H, W]`."""

    leaf: int
    name: str
    shape: tuple[int, ...]  # as the environment gives it

    @property
    def _stacked(self) -> tuple[int, ...]:
        """Frames, then one frame; channels first or last."""
        return self.shape if len(self.shape) == 4 else (1, *self.shape)

    @property
    def channels_last(self) -> bool:
        return channels_last(self.shape)

    @property
    def size(self) -> tuple[int, int, int]:
        """(C, H, W); the frames of a stack are channels."""
        if len(self.shape) == 2:
            return 1, *self.shape
        frames, *one = self._stacked
        channels, height, width = (one[2], one[0], one[1]) if self.channels_last else one
        return frames * channels, height, width

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    def channels_first(self, rows: Tensor) -> Tensor:
        """uint8[B, numbers] as uint8[B, C, H, W]; nothing is copied but for a stack of coloured frames."""
        if len(self.shape) == 2:
            return rows.reshape(-1, 1, *self.shape)
        seen = rows.reshape(-1, *self._stacked)
        if self.channels_last:
            seen = seen.permute(0, 1, 4, 2, 3)
        return seen.flatten(1, 2)


def pictures(space: spaces.Space[Any], encoder: Encoder = "auto") -> list[Picture]:
    """The leaves that `encoder` would see as pictures: uint8 of rank 3, a matrix of uint8 (grey), or a stack of either.

    Those of fewer than 1,000 numbers only where an encoder is asked for by name and there is none larger.
    """
    if encoder == "flat":
        return []
    found = []
    for leaf, (path, shape, dtype) in enumerate(Layout(space).leaves):
        if is_picture(shape, dtype):
            name = "the observation" + (f" part {'/'.join(map(str, path))}" if path else "")
            found.append(Picture(leaf, name, shape))
    large = [picture for picture in found if picture.numbers >= LEAST]
    return large or ([] if encoder == "auto" else found)


def chosen_encoder(encoder: Encoder, space: spaces.Space[Any]) -> Encoder:
    """What "auto" means for these observations: "nature", or "impala-small" where a picture is too small for it. It
    stays "auto" where there is no picture; an encoder that cannot see these pictures is refused."""
    found = pictures(space, encoder)
    small = [picture for picture in found if min(picture.size[1:]) < NATURE_SIDE]
    if encoder == "nature" and small:
        _, height, width = small[0].size
        raise ValueError(
            f"--encoder nature needs pictures of at least {NATURE_SIDE} x {NATURE_SIDE} pixels, {small[0].name} has "
            f"{height} x {width}: use --encoder impala-small"
        )
    if encoder in ("nature", "impala-small") and not found:
        raise ValueError(
            f"--encoder {encoder} is for pictures: expected a part of the observation as a Box of uint8 with 3 "
            f"dimensions (height, width, channels), got {space}. Leave the flag out"
        )
    return encoder if encoder != "auto" or not found else "impala-small" if small else "nature"


class Residual(nn.Module):
    """Two convolutions whose result is added to what came in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, values: Tensor) -> Tensor:
        made: Tensor = self.second(self.first(values.relu()).relu())
        return values + made


class Whole(nn.Linear):
    """A linear layer over a whole map `[B, C, H, W]`. On the CPU it is a convolution of the map's own size: that spares
    a copy from channels last to first, and oneDNN's convolutions are faster than torch's products of matrices."""

    def __init__(self, channels: int, height: int, width: int, made: int) -> None:
        super().__init__(channels * height * width, made)
        self.map = (made, channels, height, width)

    def forward(self, seen: Tensor) -> Tensor:
        if seen.device.type != "cpu":
            return super().forward(seen.flatten(1))
        return nn.functional.conv2d(seen, self.weight.view(self.map), self.bias).flatten(1)


class ByteConv(nn.Conv2d):
    """A convolution of pictures uint8`[B, C, H, W]`, scaled to [0, 1]. As floats they are there a few at a time, in the
    way forward and again in the way back: all those of a minibatch would be most of the memory that it takes."""

    def forward(self, seen: Tensor) -> Tensor:
        if torch.is_grad_enabled() and seen.device.type == "cpu":
            made: Tensor = _OfBytes.apply(seen, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
            return made
        return self.convolved(seen)

    def parts(self, seen: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Pictures as floats, a few at a time; on a GPU all."""
        rows = max(len(seen), 1)  # one part also of none
        step = max(FLOATS // math.prod(seen.shape[1:]), 1) if seen.device.type == "cpu" else rows
        for first in range(0, rows, step):
            part = slice(first, first + step)
            # Channels last: a quarter off the time of the convolutions on the CPU.
            yield part, seen[part].to(torch.float32, memory_format=torch.channels_last).div_(255)

    def convolved(self, seen: Tensor) -> Tensor:
        """What it makes of them."""
        made: Tensor | None = None
        for part, values in self.parts(seen):
            found = super().forward(values)
            if len(found) == len(seen):
                return found
            if made is None:
                size = (len(seen), *found.shape[1:])
                made = torch.empty(size, device=seen.device, memory_format=torch.channels_last)
            made[part] = found
        assert made is not None
        return made


class _OfBytes(torch.autograd.Function):
    """`ByteConv` with its gradients, which the bytes are enough for."""

    @staticmethod
    def forward(ctx: Any, seen: Tensor, weight: Tensor, bias: Tensor, layer: ByteConv) -> Tensor:
        ctx.seen, ctx.layer = seen, layer
        ctx.save_for_backward(weight)
        return layer.convolved(seen)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[None, Tensor, Tensor, None]:
        (weight,), layer = ctx.saved_tensors, ctx.layer
        of_weight, of_bias = torch.zeros_like(weight), torch.zeros_like(weight[:, 0, 0, 0])
        for part, values in layer.parts(ctx.seen):
            _, more, offset = torch.ops.aten.convolution_backward(
                slope[part], values, weight, [len(weight)], layer.stride, layer.padding, layer.dilation, False,
                [0, 0], layer.groups, [False, True, True],
            )  # fmt: skip
            of_weight += more
            of_bias += offset
        return None, of_weight, of_bias, None


class Eye(nn.Sequential):
    """The convolutions for one picture: bytes `[B, C, H, W]` to features `[B, width]`."""

    def __init__(self, picture: Picture, encoder: Encoder) -> None:
        channels, height, width = picture.size
        layers: list[nn.Module] = []
        if encoder == "nature":
            for made, kernel, stride in _NATURE:
                layers += [(nn.Conv2d if layers else ByteConv)(channels, made, kernel, stride), nn.ReLU(inplace=True)]
                channels, height, width = made, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        else:
            for made in _IMPALA:
                first = (nn.Conv2d if layers else ByteConv)(channels, made, 3, padding=1)
                layers += [first, nn.MaxPool2d(3, 2, padding=1), Residual(made)]
                channels, height, width = made, (height + 1) // 2, (width + 1) // 2
            layers.append(nn.ReLU(inplace=True))
        self.width = width_of(encoder)
        last = Whole(channels, height, width, self.width)  # behind a place that was a layer's: weights keep their names
        super().__init__(*layers, nn.Identity(), last, nn.ReLU(inplace=True))


class Eyes(nn.Module):
    """Packed rows `[B, bytes]` (see `Features.pack`) to features: what each eye sees, then the numbers as they are."""

    def __init__(self, found: Sequence[Picture], num_numbers: int, encoder: Encoder) -> None:
        super().__init__()
        self.pictures, self.num_numbers = list(found), num_numbers
        eyes = [Eye(picture, encoder) for picture in found]
        self.eyes, self.width = nn.ModuleList(eyes), sum(eye.width for eye in eyes) + num_numbers
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, rows: Tensor) -> Tensor:
        parts, at = [], 0
        for eye, picture in zip(self.eyes, self.pictures, strict=True):
            parts.append(eye(picture.channels_first(rows[:, at : at + picture.numbers])))
            at += picture.numbers
        if self.num_numbers:
            parts.append(rows[:, at:].contiguous().view(torch.float32))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class SeeingActorCritic(PolicyAndValue):
    """One encoder for policy and value, and an `ActorCritic` on its features. It takes packed rows, uint8[B, bytes]."""

    def __init__(
        self, found: Sequence[Picture], num_numbers: int, kind: ActionKind, encoder: Encoder, **layers: Any
    ) -> None:
        super().__init__()
        self.encoder = Eyes(found, num_numbers, encoder)
        self.head = ActorCritic(self.encoder.width, kind, **layers)

    def both(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and values by one look."""
        features = self.encoder(rows)
        return self.head.policy(features), self.head.value(features)

    def is_plain(self) -> bool:
        """Whether `policy` and `value` are those of this class."""
        return type(self) is SeeingActorCritic and not {"policy", "value"} & set(self.__dict__)

    def policy(self, rows: Tensor) -> Tensor:
        """Parameters of the action distribution `[B, P]`."""
        return self.head.policy(self.encoder(rows))

    def value(self, rows: Tensor) -> Tensor:
        """Value estimates `[B]`."""
        return self.head.value(self.encoder(rows))


def seen_once(network: PolicyAndValue, rows: Tensor) -> tuple[PolicyAndValue, Tensor]:
    """What policy and value have in common is seen once: the network behind the encoder, and what this makes of the
    rows. Any other network, and its rows as they are."""
    if isinstance(network, SeeingActorCritic) and network.is_plain():
        return network.head, network.encoder(rows)
    return network, rows


def sizes(picture: Picture, encoder: Encoder) -> Iterator[tuple[int, int]]:
    """(weights, numbers that it makes of one picture) of each layer of an `Eye`."""
    channels, height, width = picture.size
    if encoder == "nature":
        for made, kernel, stride in _NATURE:
            weights = made * (channels * kernel**2 + 1)
            channels, height, width = made, (height - kernel) // stride + 1, (width - kernel) // stride + 1
            yield weights, made * height * width
    else:
        for made in _IMPALA:
            yield made * (channels * 9 + 1), made * height * width
            channels, height, width = made, (height + 1) // 2, (width + 1) // 2
            small, block = made * height * width, made * (made * 9 + 1)
            yield from ((0, 2 * small), (block, small), (block, small), (0, small))  # where it was largest, residual
    last = width_of(encoder)
    yield last * (channels * height * width + 1), last


def width_of(encoder: Encoder) -> int:
    """Features that an `Eye` makes of a picture."""
    return _NATURE_WIDTH if encoder == "nature" else _IMPALA_WIDTH
