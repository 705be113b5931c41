"""Frames as moving pictures: a gif or an mp4 as they come, or a short clip that fits into a page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from shoal.core.arrays import Array
from shoal.extras import install, missing

KINDS = (".gif", ".mp4")
_FASTEST = 25  # frames a second of a gif: viewers slow down what is faster
_MOST_FRAMES, _MOST_WIDTH = 1500, 480  # of a gif, which is held in memory until it is written
_HOLD_S = 0.8  # the last frame of an episode stands still for so long
CLIP_FRAMES, CLIP_WIDTH, CLIP_BYTES = 96, 240, 600_000  # three of them fit into a page of 3 MB
_COLOURS = 64
TEXT_FRAMES, MOST_TEXT = 8, 4_000  # characters of a frame
_COLOUR_CODES = re.compile("\x1b\\[[0-9;]*[A-Za-z]")


class Frames(Protocol):
    """Whoever takes the frames of episodes."""

    def begin(self) -> None:
        """An episode begins."""

    def add(self, frame: Any) -> None:
        """What the environment shows after its reset, and after each step."""


class Writer(Frames, Protocol):
    """Frames that become a file."""

    path: Path
    frames: int

    def close(self) -> None:
        """Write what is left to write."""


def open_film(path: str | Path, frames_per_s: float) -> Writer:
    """A file to write frames to, .gif or .mp4; refused before anything is played if it could not be written."""
    path = Path(path)
    check_film(path)
    return _Gif(path, frames_per_s) if path.suffix.lower() == ".gif" else _Mp4(path, frames_per_s)


def check_film(path: Path) -> None:
    """Refuse a kind of file that is not known, a folder that is not there, a package that is missing."""
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"expected --video as a file that ends in {' or '.join(KINDS)}, got {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"expected the folder of --video {path} to exist: make {path.parent} first")
    needed = "PIL" if path.suffix.lower() == ".gif" else "imageio_ffmpeg"
    if needed in missing("video"):
        what = "Pillow" if needed == "PIL" else "imageio-ffmpeg"
        raise ModuleNotFoundError(
            f"a video as {path.suffix} needs {what}, which is not installed: {install('video')}", name=needed
        )


def picture(frame: Any) -> Array:
    """A frame as uint8[height, width, 3], or the reason why it is none."""
    array = np.asarray(frame)
    if array.ndim != 3 or array.shape[2] not in (3, 4) or array.dtype != np.uint8 or 0 in array.shape:
        got = "nothing" if frame is None else f"{array.dtype} of shape {array.shape}"
        raise ValueError(f"expected render() of the environment to give uint8[height, width, 3], got {got}")
    return array[:, :, :3]


class _Gif:
    """A gif by Pillow: small enough to send, with every frame of a short episode and fewer of a long one."""

    def __init__(self, path: Path, frames_per_s: float) -> None:
        self.path, self.frames = path, 0
        self._stride = max(1, round(frames_per_s / _FASTEST))
        self._frame_ms = 1000 * self._stride / frames_per_s
        self._images: list[Any] = []
        self._lasts: list[int] = []  # the last frame of each episode
        self._seen = 0  # of this episode
        self._newest: Array | None = None

    def begin(self) -> None:
        self._end_episode()
        self._seen = 0

    def add(self, frame: Any) -> None:
        self._newest = picture(frame)
        if self._seen % self._stride == 0:
            self._keep()
        self._seen += 1

    def _keep(self) -> None:
        if self._newest is not None and len(self._images) < _MOST_FRAMES:
            self._images.append(_small(self._newest, _MOST_WIDTH, 256))
            self.frames += 1
        self._newest = None

    def _end_episode(self) -> None:
        self._keep()  # how it ended must not fall between two strides
        if self._images:
            self._lasts.append(len(self._images) - 1)

    def close(self) -> None:
        self._end_episode()
        held = set(self._lasts)
        times = [self._frame_ms + 1000 * _HOLD_S * (at in held) for at in range(len(self._images))]
        self.path.write_bytes(_gif(self._images, times))


class _Mp4:
    """An mp4 (H.264) by ffmpeg, as it comes: nothing is held in memory."""

    def __init__(self, path: Path, frames_per_s: float) -> None:
        self.path, self.frames = path, 0
        self._frames_per_s = frames_per_s
        self._send: Any = None
        self._shape: tuple[int, ...] = ()
        self._newest: Array | None = None

    def begin(self) -> None:
        self._hold()

    def add(self, frame: Any) -> None:
        self._newest = picture(frame)
        if self._send is None:
            self._shape = self._newest.shape
            self._send = self._open()
        if self._newest.shape != self._shape:
            raise ValueError(f"expected frames of one size, {self._shape}, got {self._newest.shape}")
        self._send.send(np.ascontiguousarray(self._newest))
        self.frames += 1

    def _open(self) -> Any:
        import imageio_ffmpeg

        size = self._shape[1], self._shape[0]
        send = imageio_ffmpeg.write_frames(str(self.path), size, fps=self._frames_per_s, macro_block_size=2)
        send.send(None)
        return send

    def _hold(self) -> None:
        if self._send is not None and self._newest is not None:
            for _ in range(round(_HOLD_S * self._frames_per_s)):
                self._send.send(np.ascontiguousarray(self._newest))

    def close(self) -> None:
        self._hold()
        if self._send is not None:
            self._send.close()


class Clip:
    """One episode in little: as many frames as fit, evenly spread whatever its length."""

    def __init__(self, frames_per_s: float) -> None:
        self._frame_s, self._stride, self._seen = 1 / frames_per_s, 1, 0
        self._images: list[Any] = []
        self._newest: Array | None = None

    def begin(self) -> None:
        self._images, self._stride, self._seen, self._newest = [], 1, 0, None

    def add(self, frame: Any) -> None:
        self._newest = picture(frame)
        if self._seen % self._stride == 0:
            self._images.append(_small(self._newest, CLIP_WIDTH, _COLOURS))
            self._newest = None
            if len(self._images) > 2 * CLIP_FRAMES:
                self._images, self._stride = self._images[::2], 2 * self._stride
        self._seen += 1

    def still(self) -> bytes:
        """Its last frame as PNG, for whoever has asked for no motion."""
        out = io.BytesIO()
        self._whole()[-1].save(out, format="PNG")
        return out.getvalue()

    def gif(self) -> bytes:
        """At most `CLIP_BYTES`: of an episode whose frames hardly resemble each other fewer of them."""
        images = self._whole()
        count = min(len(images), CLIP_FRAMES)
        while True:
            chosen = [images[at] for at in np.linspace(0, len(images) - 1, count).astype(int)]
            play_s = min(max(self._seen * self._frame_s, 2.0), 8.0)  # short ones slower, long ones faster
            times = [1000 * play_s / count] * (count - 1) + [1000 * _HOLD_S]
            data = _gif(chosen, times)
            if len(data) <= CLIP_BYTES or count == 1:
                return data
            count = max(1, int(count * 0.9 * CLIP_BYTES / len(data)))

    def _whole(self) -> list[Any]:
        """With its last frame."""
        if self._newest is not None:
            self._images.append(_small(self._newest, CLIP_WIDTH, _COLOURS))
            self._newest = None
        return self._images


class Lines:
    """One episode as text: a few frames, evenly spread."""

    def __init__(self) -> None:
        self._all: list[str] = []

    def begin(self) -> None:
        self._all = []

    def add(self, frame: Any) -> None:
        self._all.append(_COLOUR_CODES.sub("", str(frame))[:MOST_TEXT])

    @property
    def frames(self) -> list[str]:
        """The first and the last are among them."""
        count = min(len(self._all), TEXT_FRAMES)
        return [self._all[at] for at in np.linspace(0, len(self._all) - 1, count).astype(int)]


def _small(frame: Array, most_width: int, colours: int) -> Any:
    """A Pillow image with a palette of its own."""
    from PIL import Image

    image = Image.fromarray(frame)
    if image.width > most_width:
        image = image.resize((most_width, max(1, round(image.height * most_width / image.width))))
    return image.quantize(colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def _gif(images: Sequence[Any], times_ms: Sequence[float]) -> bytes:
    """The same bytes for the same frames. Times are in hundredths of a second, the unit of the format."""
    if not images:
        raise ValueError("expected at least one frame, got none")
    out, rounded = io.BytesIO(), [max(20, 10 * round(time / 10)) for time in times_ms]
    images[0].save(
        out, format="GIF", save_all=True, append_images=images[1:], duration=rounded, loop=0, optimize=False, disposal=1
    )
    return out.getvalue()
