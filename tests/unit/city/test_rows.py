"""The proof's comparison of rows names what is missing, doubled, altered or unexpected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from city.feeds import TIME, FaceFeed, VehicleFeed
from city.fields import FACE_WIRE, VEHICLE_WIRE
from city.rows import judge
from city.world import World, WorldPlan, make_world


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(WorldPlan(seed=1, vehicles=3_000, faces=500))


def stored(feed: VehicleFeed | FaceFeed, wire: dict[str, str], *, normal: bool = True) -> pa.Table:
    rows = np.flatnonzero(feed.truth.abnormal != normal)
    sent = feed.table(rows)
    table = sent.select(list(wire.values())).rename_columns(list(wire))
    captured = pc.strptime(table["capture_time"], "%Y-%m-%d %H:%M:%S", "us")
    at = table.column_names.index("capture_time")
    table = table.set_column(at, "capture_time", captured)
    return table.append_column("sent_time", sent[TIME].cast(pa.timestamp("ms")))


def test_equal_rows_in_any_order_are_right(world: World) -> None:
    for feed, wire in ((VehicleFeed(world), VEHICLE_WIRE), (FaceFeed(world), FACE_WIRE)):
        table = stored(feed, wire)
        verdict = judge(feed, table.take(pa.array(np.arange(table.num_rows)[::-1])))
        assert verdict.faults == {}
        assert verdict.rows == int((~feed.truth.abnormal).sum())


def test_each_fault_is_named(world: World) -> None:
    feed = VehicleFeed(world)
    table = stored(feed, VEHICLE_WIRE)
    assert judge(feed, table.slice(1)).faults == {"missing": 1}
    assert judge(feed, pa.concat_tables([table, table.slice(4, 2)])).faults == {"doubled": 2}
    brands = table["brand"].to_pylist()
    brands[3] = "Trabant"
    at = table.column_names.index("brand")
    assert judge(feed, table.set_column(at, "brand", pa.array(brands))).faults == {"altered": 1}
    none = pa.array([None, *table["series"].to_pylist()[1:]], pa.string())
    at = table.column_names.index("series")
    assert judge(feed, table.set_column(at, "series", none)).faults == {"altered": 1}
    later = pa.array(np.array(table["sent_time"].cast(pa.int64())) + 1).cast(pa.timestamp("ms"))
    at = table.column_names.index("sent_time")
    faults = judge(feed, table.set_column(at, "sent_time", later)).faults
    assert faults == {"altered": table.num_rows}


def test_abnormal_and_unknown_rows_are_unexpected(world: World) -> None:
    feed = VehicleFeed(world)
    table = stored(feed, VEHICLE_WIRE)
    blurred = stored(feed, VEHICLE_WIRE, normal=False).slice(0, 2)
    unknown = table.slice(0, 1).set_column(0, "record_id", pa.array(["v9999999"]))
    verdict = judge(feed, pa.concat_tables([table, blurred, unknown]))
    assert verdict.faults == {"unexpected": 3}


def test_changed_features_are_altered(world: World) -> None:
    feed = FaceFeed(world)
    table = stored(feed, FACE_WIRE)
    lists = table["features"].to_pylist()
    lists[7][15] += 0.5
    at = table.column_names.index("features")
    assert judge(feed, table.set_column(at, "features", pa.array(lists))).faults == {"altered": 1}
