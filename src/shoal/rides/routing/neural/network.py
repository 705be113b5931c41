"""The network behind the neural oracle: attention over a day's requests, and a score for each place of a request.

A request is one token: its pickup, its dropoff, their windows, and how they lie to the depot. What links two requests
(the way from one to the other, what it saves to serve them in a row or in one car) biases the attention. Nodes are
projected once a day; a step of the decoder adds up the projections around a place and what placing the request there
does in seconds. The score begins as minus the extra seconds: an untrained network makes cheapest insertion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.rides.routing.neural.fleet import GAPS, NOWHERE, Batch, Fleet, Places

FAR_S = 1200.0  # seconds are divided by this
NODE_FEATURES, LINK_FEATURES, PLACE_FEATURES = 20, 10, 25
OFFERED = 12  # places of a request that are scored
_LOGIT_NOWHERE = -1e9


@dataclass(frozen=True)
class Links:
    """What each ordered pair of requests has to do with each other."""

    saving: Tensor  # float32[B, C, C], units of FAR_S: [a, b] if b is driven right after a instead of on a route alone
    features: Tensor  # float32[2 * LINK_FEATURES, B, C + 1, C + 1], the depot last and zero


def links_of(batch: Batch) -> Links:
    """From the matrix and the windows."""
    city = batch.city
    zone_p, zone_d = batch.zone[:, 0:-1:2], batch.zone[:, 1:-1:2]
    open_p, close_p = batch.opens[:, 0:-1:2], batch.closes[:, 0:-1:2]
    open_d, close_d = batch.opens[:, 1:-1:2], batch.closes[:, 1:-1:2]
    depot = torch.full_like(zone_p, city.depot)
    out, back, direct = city.leg_s(depot, zone_p), city.leg_s(zone_d, depot), city.leg_s(zone_p, zone_d)

    def legs(start: Tensor, end: Tensor) -> Tensor:
        return city.leg_s(start[:, :, None], end[:, None, :])

    d_p, p_p, d_d = legs(zone_d, zone_p), legs(zone_p, zone_p), legs(zone_d, zone_d)
    start_a = torch.maximum(open_p, out + city.open_s)
    end_a = torch.maximum(start_a + direct, open_d)
    different = ~torch.eye(zone_p.shape[1], dtype=torch.bool, device=zone_p.device)
    both = batch.present[:, :, None] & batch.present[:, None, :] & different
    follows = both & (end_a[:, :, None] + d_p <= close_p[:, None])
    saving = torch.where(follows, back[:, :, None] + out[:, None] - d_p, 0)
    reach_p = torch.maximum(start_a[:, :, None] + p_p, open_p[:, None])
    aboard = both & (reach_p <= close_p[:, None])
    at_da = torch.maximum(reach_p + d_p.transpose(1, 2), open_d[:, :, None])
    first_out = aboard & (at_da <= close_d[:, :, None]) & (at_da + d_d <= close_d[:, None])
    apart = direct[:, :, None] + back[:, :, None] + out[:, None] + direct[:, None]
    crossed = torch.where(first_out, apart - p_p - d_p.transpose(1, 2) - d_d, 0)
    at_db = torch.maximum(reach_p + direct[:, None], open_d[:, None])
    d_d_back = d_d.transpose(1, 2)
    inside = aboard & (at_db <= close_d[:, None]) & (at_db + d_d_back <= close_d[:, :, None])
    nested = torch.where(inside, direct[:, :, None] + out[:, None] + back[:, None] - p_p - d_d_back, 0)
    waits = (open_p[:, None] - close_d[:, :, None] - d_p).clamp(-7200, 7200) / 3600.0
    later = (open_p[:, None] - open_p[:, :, None]).clamp(-14400, 14400) / 7200.0
    days, customers = zone_p.shape
    features = torch.zeros((2 * LINK_FEATURES, days, customers + 1, customers + 1), device=zone_p.device)
    one_way, other_way = features.view(2, LINK_FEATURES, *features.shape[1:])[..., :-1, :-1]
    columns = (d_p, p_p, d_d, saving, crossed, nested, follows, first_out, inside, waits * follows)
    for at, column in enumerate(columns):
        one_way[at] = column
    one_way[:6] /= FAR_S
    other_way[0] = later
    other_way[1:] = one_way[1:].transpose(2, 3)
    return Links(one_way[3].clone(), features)  # not a view: what is kept of a day would hold all its features


def node_features(batch: Batch, links: Links) -> Tensor:
    """float32[B, C, NODE_FEATURES]."""
    city = batch.city
    zone_p, zone_d = batch.zone[:, 0:-1:2], batch.zone[:, 1:-1:2]
    open_p, close_p = batch.opens[:, 0:-1:2], batch.closes[:, 0:-1:2]
    open_d, close_d = batch.opens[:, 1:-1:2], batch.closes[:, 1:-1:2]
    depot = torch.full_like(zone_p, city.depot)
    legs = [city.leg_s(depot, zone_p), city.leg_s(zone_p, zone_d), city.leg_s(zone_d, depot),
            city.leg_s(zone_p, depot), city.leg_s(depot, zone_d)]  # fmt: skip
    day = (open_p + close_p) * (math.pi / 86400.0)
    widths = [(close_p - open_p) / 3600.0, (close_d - open_d) / 3600.0, (open_d - open_p) / 3600.0]
    onward, hither = (links.saving.topk(min(2, links.saving.shape[2]), dim).values for dim in (2, 1))
    hither = hither.transpose(1, 2)
    fleet = batch.count[:, None].expand(zone_p.shape)
    columns = [
        *(leg / FAR_S for leg in legs), *widths, day / math.pi - 1, torch.sin(day), torch.cos(day),
        batch.load[:, 0:-1:2] / city.capacity, fleet / 45.0, fleet / (10.0 * city.vehicles),
        onward[..., 0], onward[..., -1], hither[..., 0], hither[..., -1],
        links.features[4, :, :-1, :-1].amax(2), links.features[5, :, :-1, :-1].amax(2),
    ]  # fmt: skip
    return torch.stack([column.float() for column in columns], 2)


class Layer(nn.Module):
    """Attention with a bias for every pair, then a small network; both add to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        days, nodes, width = tokens.shape
        query, key, value = (
            product(self.project, self.before(tokens)).view(days, nodes, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        tokens = tokens + product(self.join, mixed.transpose(1, 2).reshape(days, nodes, width))
        return tokens + product(self.narrow, product(self.widen, self.between(tokens)).relu_())


def product(layer: nn.Linear, rows: Tensor) -> Tensor:
    """`layer(rows)`; on a CPU that only decodes by oneDNN, which on an AMD EPYC takes half the time of MKL."""
    if rows.device.type == "cpu" and torch.is_inference_mode_enabled() and torch._C._has_mkldnn:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, layer.weight, layer.bias, "none", [], "")
        return out
    out = layer(rows)
    return out


class RoutingNetwork(nn.Module):
    """Encoder and scorer."""

    def __init__(self, width: int = 96, heads: int = 6, layers: int = 3, hidden: int = 48) -> None:
        super().__init__()
        self.shape = (width, heads, layers, hidden)
        self.enter = nn.Linear(NODE_FEATURES, width)
        self.depot = nn.Parameter(torch.zeros(width))
        self.link_in, self.link_out = nn.Linear(2 * LINK_FEATURES, 16), nn.Linear(16, heads * layers)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.leave = nn.LayerNorm(width)
        # Of a node as the one before or after the pickup, before or after the dropoff.
        self.as_pickup, self.as_dropoff = nn.Linear(width, 4 * hidden), nn.Linear(width, 4 * hidden)
        self.as_depot = nn.Linear(width, 4 * hidden)
        self.placed = nn.Linear(width, hidden)
        self.place_in = nn.Linear(PLACE_FEATURES, hidden, bias=False)
        self.place_mid, self.rivals = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.place_out = nn.Linear(hidden, 1, bias=False)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(FAR_S / 120.0)))
        nn.init.zeros_(self.link_out.weight)
        nn.init.zeros_(self.place_out.weight)

    def encode(self, batch: Batch, links: Links) -> tuple[Tensor, Tensor]:
        """(what nodes add to the hidden layer float32[B, 2C + 1, 4, H], what requests add float32[B, C, H])."""
        tokens = self.tokens(batch, links)
        days, hidden = len(tokens), self.shape[3]
        asked = tokens[:, :-1].contiguous()
        stops = torch.stack([product(self.as_pickup, asked), product(self.as_dropoff, asked)], 2)
        nodes = torch.cat([stops.view(days, 2 * batch.customers, -1), self.as_depot(tokens[:, -1:])], 1)
        return nodes.view(days, -1, 4, hidden), self.placed(asked)

    def tokens(self, batch: Batch, links: Links) -> Tensor:
        """float32[B, C + 1, W]: each request as the day makes it, and the depot last."""
        days = len(batch.zone)
        _, heads, layers, _ = self.shape
        entered = self.enter(node_features(batch, links))
        tokens = torch.cat([entered, self.depot.expand(days, 1, -1)], 1)
        bias = self._bias(links.features.flatten(1)).view(layers, heads, *links.features.shape[1:]).transpose(1, 2)
        absent = F.pad(~batch.present, (0, 1))[:, None, None]
        for layer, of_layer in zip(self.layers, bias.masked_fill(absent, _LOGIT_NOWHERE), strict=True):
            tokens = layer(tokens, of_layer)
        out: Tensor = self.leave(tokens)
        return out

    def _bias(self, features: Tensor) -> Tensor:
        """Of every layer and head, [L * H, n], for n pairs of requests: features in rows, as there are few and n is
        large."""
        hidden = torch.addmm(self.link_in.bias[:, None], self.link_in.weight, features).relu_()
        return torch.addmm(self.link_out.bias[:, None], self.link_out.weight, hidden)

    def score(self, around: Tensor, placed: Tensor, features: Tensor, extra_s: Tensor) -> Tensor:
        """Logits [n, K] of places: around [n, K, H] and placed [n, H] from `encode`, features [n, K, F]."""
        hidden = torch.relu(self.place_in(features) + around + placed[:, None])
        there = extra_s < NOWHERE
        rivals = torch.where(there[..., None], hidden, 0.0).amax(1)
        worth = self.place_out(torch.relu(self.place_mid(hidden) + self.rivals(rivals)[:, None]))[..., 0]
        logits = worth - self.log_sharpness.exp() * (extra_s - extra_s[:, :1]) / FAR_S
        return torch.where(there, logits, _LOGIT_NOWHERE)


def gathered(nodes: Tensor, around: Tensor) -> Tensor:
    """The sum over the four sides of a place, [B, K, H]: nodes [B, N, 4, H] at around [B, 4, K]."""
    days, count, sides, hidden = nodes.shape
    day = torch.arange(days, device=nodes.device)[:, None, None]
    side = torch.arange(sides, device=nodes.device)[None, :, None]
    rows = ((day * count + around) * sides + side).transpose(1, 2).reshape(-1, sides)
    return F.embedding_bag(rows, nodes.reshape(-1, hidden), mode="sum").view(days, -1, hidden)


def place_features(fleet: Fleet, places: Places, request: Tensor, saving: Tensor, left: Tensor) -> Tensor:
    """float32[B, K, PLACE_FEATURES]: what placing request[b] there does; `saving` [B, C, C] of requests still open.

    `left` float32[B] is the share of requests still to come.
    """
    batch = fleet.batch
    last = fleet.node[:, :, -2]  # the last stop of each vehicle, a dropoff
    empty = last == fleet.depot
    vehicles = last.shape[1]
    customers = batch.customers
    of_last = (last // 2).clamp(max=customers - 1)[:, :, None].expand(-1, -1, customers)
    ahead = torch.where(empty[:, :, None], 0.0, saving.gather(1, of_last))  # [B, V, C]
    own = request[:, None, None]
    mine = ahead.gather(2, own.expand(-1, vehicles, 1))[..., 0]
    others = ahead.scatter(2, own.expand(-1, vehicles, 1), 0.0).amax(2)
    follow = saving.gather(1, own.expand(-1, 1, customers))[:, 0].amax(1)
    idle_s = batch.opens.gather(1, 2 * request[:, None]) - fleet.earliest[:, :, -2]
    by_vehicle = torch.stack([
        empty.float(), mine, others, (idle_s / 3600.0).clamp(-3, 3), fleet.stops / 20.0,
    ], 1).float()  # fmt: skip
    chosen = by_vehicle.gather(2, places.vehicle[:, None].expand(-1, 5, -1))
    at_end = (places.dropoff_gap == GAPS - 1).float()
    extra = places.extra_s.clamp(max=7200) / FAR_S
    seconds = (places.seconds / FAR_S).clamp(-6, 6)
    everywhere = torch.stack([follow, left, empty.float().mean(1)], 1)[:, :, None].expand(-1, -1, extra.shape[1])
    alone = torch.stack([
        extra, extra - extra[:, :1], (places.dropoff_gap - places.pickup_gap) / GAPS, at_end,
        (GAPS - 1 - places.dropoff_gap) / GAPS, places.load / batch.city.capacity,
        chosen[:, 2] * at_end, follow[:, None] * at_end,
    ], 1)  # fmt: skip
    slack = (places.slack_s / 1800.0).clamp(-2, 4)
    return torch.cat([chosen, everywhere, alone, seconds, slack], 1).transpose(1, 2)
