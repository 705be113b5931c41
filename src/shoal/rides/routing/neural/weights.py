"""Weights of the routing network as a safetensors file."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from shoal.rides.routing.neural.network import RoutingNetwork

KIND = "shoal rides routing network 1"  # another number: other features or layers
SHIPPED = Path(__file__).parents[2] / "data" / "oracle.safetensors"
HOW = "shoal rides fit oracle --hours 3 makes such a file"


def save_network(network: RoutingNetwork, path: Path) -> None:
    """Write the weights, and how wide the network is."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    about = " ".join(map(str, (KIND, *network.shape)))  # one entry: several come in any order, and so other bytes
    save_file(tensors, path, metadata={"about": about})


def load_network(path: Path | str = "", device: str = "cpu") -> RoutingNetwork:
    """The network of a file; without one, that which comes with the package, if any does."""
    path = Path(path) if path else SHIPPED
    if not path.is_file():
        if path == SHIPPED:
            raise ValueError(f"no weights of the neural oracle come with shoal: give --oracle-weights FILE; {HOW}")
        raise ValueError(f"--oracle-weights {path}: expected a file, there is none; {HOW}")
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise ValueError(f"--oracle-weights {path}: cannot be read as safetensors ({error}); {HOW}") from None
    about = facts.get("about", "")
    if not re.fullmatch(KIND + r"( [1-9]\d{0,4}){4}", about):
        raise ValueError(f"--oracle-weights {path}: expected a {KIND!r} and its shape, got {about!r}; {HOW}")
    width, heads, layers, hidden = map(int, about.removeprefix(KIND).split())
    held = sum(tensor.numel() for tensor in tensors.values())
    most = max(width * width, width * hidden, hidden * hidden, heads * layers)  # of its matrices, before one is made
    if width % heads or most > held or layers > len(tensors):
        raise ValueError(f"--oracle-weights {path}: {held} weights do not fit a network of shape {about!r}; {HOW}")
    network = RoutingNetwork(width, heads, layers, hidden)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"--oracle-weights {path}: its weights do not fit the network: {error}") from None
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ValueError(f"--oracle-weights {path}: expected finite weights; {HOW}")
    return network.to(device).eval()
