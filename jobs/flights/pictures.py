"""The demo's pictures: delay by hour, delays by weather, throughput during the kills."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from flights.ledger import Ledger
from flights.year import Year

BIN_S = 0.25
SIZE_INCHES = (9.0, 3.6)
LINE = "#1f6f8b"
ALARM = "#c8553d"


def draw_all(year: Year, ledger: Ledger, delays: pd.DataFrame, out: Path) -> list[Path]:
    """Draw the pictures into `out`. `delays` has the columns hour, dep_delay and is_rough."""
    mpl.use("Agg")
    out.mkdir(parents=True, exist_ok=True)
    return [
        _delay_by_hour(delays, out / "delay-by-hour.png"),
        _weather_share(delays, out / "weather-share.png"),
        _throughput(year, ledger, out / "throughput.png"),
    ]


def _delay_by_hour(delays: pd.DataFrame, path: Path) -> Path:
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    for is_rough, color, name in ((False, LINE, "fair weather"), (True, ALARM, "rough weather")):
        part = delays[delays["is_rough"] == is_rough].groupby("hour")["dep_delay"].mean()
        axes.plot(part.index, part.to_numpy(), color=color, marker="o", markersize=3, label=name)
    axes.set(xlabel="scheduled hour", ylabel="mean departure delay, min")
    axes.set_title("Delays grow through the day, and more in rough weather")
    axes.legend(frameon=False)
    return _save(figure, path)


def _weather_share(delays: pd.DataFrame, path: Path) -> Path:
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    edges = [15, 30, 60, 120, 240, 1500]
    late = delays[delays["dep_delay"] > edges[0]]
    groups = pd.cut(late["dep_delay"], edges)
    share = late.groupby(groups, observed=True)["is_rough"].mean() * 100
    names = [f"{int(b.left)}-{int(b.right)}" for b in share.index]
    names[-1] = f"over {edges[-2]}"
    axes.bar(names, share.to_numpy(), color=LINE)
    axes.axhline(delays["is_rough"].mean() * 100, color=ALARM, label="all flights")
    axes.set(xlabel="departure delay, min", ylabel="in rough weather, %")
    axes.set_title("Which delays were weather? The longer, the more of them")
    axes.legend(frameon=False)
    return _save(figure, path)


def _throughput(year: Year, ledger: Ledger, path: Path) -> Path:
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    at = np.array([ack.at_s for ack in ledger.acks]) - year.started_s
    counts, edges = np.histogram(at, bins=np.arange(0, at.max() + BIN_S, BIN_S))
    axes.fill_between(edges[:-1], counts / BIN_S, step="post", color=LINE, alpha=0.8)
    for kill in year.kills:
        axes.axvline(kill.killed_at_s - year.started_s, color=ALARM)
        label = f" {kill.name}\n {ledger.pause_ms(kill.killed_at_s):.0f} ms"
        top = axes.get_ylim()[1]
        axes.text(kill.killed_at_s - year.started_s, top * 0.86, label, color=ALARM)
    axes.set(xlabel="seconds", ylabel="acknowledged records/s")
    axes.set_title("Two kills in the throughput curve")
    return _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> Path:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
