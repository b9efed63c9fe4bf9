"""The deployment of the city: districts, cameras with places and addresses, recognition servers.

Half of the cameras recognise by themselves; each of the others sends its pictures to one of the
recognition servers. The lookup table IP -> place is what alarms are worded with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

DISTRICTS = (
    ("Shangcheng", 30.243, 120.169, 0.10),
    ("Xiacheng", 30.290, 120.180, 0.08),
    ("Jianggan", 30.305, 120.235, 0.13),
    ("Gongshu", 30.335, 120.140, 0.12),
    ("Xihu", 30.255, 120.105, 0.20),
    ("Binjiang", 30.185, 120.205, 0.07),
    ("Xiaoshan", 30.165, 120.290, 0.17),
    ("Yuhang", 30.375, 120.255, 0.13),
)
"""Name, latitude and longitude of the centre, share of the cameras."""
SPREAD_DEGREES = 0.045
"""How far cameras lie from their district's centre, as a standard deviation."""
ROADS_PER_DISTRICT = 8
EARTH_KM = 6371.0


@dataclass(frozen=True)
class Server:
    """A recognition server: cameras without recognition send it their pictures."""

    index: int
    ip: str
    district: str

    @property
    def place(self) -> str:
        """Where it stands, as alarms word it."""
        return f"recognition server {self.index} of {self.district} district"


@dataclass(frozen=True)
class Camera:
    """A camera: `server` is None for one that recognises by itself."""

    index: int
    ip: str
    checkpoint_id: str
    district: str
    roads: tuple[str, str]
    latitude: float
    longitude: float
    server: Server | None

    @property
    def recognition_ip(self) -> str:
        """The address of what reads its pictures: the server's, or its own."""
        return self.server.ip if self.server is not None else self.ip

    @property
    def place(self) -> str:
        """Where it stands, as alarms word it."""
        first, second = self.roads
        return f"device {self.index} at {first} and {second}, {self.district} district"


@dataclass(frozen=True)
class Deployment:
    """All cameras and servers, and the distances between cameras."""

    cameras: tuple[Camera, ...]
    servers: tuple[Server, ...]
    distances_km: Any
    """Square matrix by camera index."""

    @property
    def places(self) -> dict[str, str]:
        """IP -> place, of cameras and servers."""
        return {c.ip: c.place for c in self.cameras} | {s.ip: s.place for s in self.servers}

    @property
    def by_ip(self) -> dict[str, Camera]:
        """The cameras by address."""
        return {camera.ip: camera for camera in self.cameras}


def deploy(rng: np.random.Generator, cameras: int, servers: int) -> Deployment:
    """Place cameras and servers. Every second camera is smart; a server gathers its district's."""
    shares = np.array([share for *_, share in DISTRICTS])
    district_of = rng.choice(len(DISTRICTS), size=cameras, p=shares / shares.sum())
    # Sorted, so that the cameras of a server are neighbours in one or two districts.
    district_of = np.sort(district_of)
    old = [n for n in range(cameras) if n % 2]
    server_of = {n: i * servers // len(old) for i, n in enumerate(old)}
    home = {server_of[n]: int(district_of[n]) for n in reversed(old)}
    stations = []
    for index in range(servers):
        district = home[index]
        ip = f"192.168.{district + 1}.{254 - index}"
        stations.append(Server(index, ip, DISTRICTS[district][0]))
    made = []
    for n in range(cameras):
        name, latitude, longitude, _ = DISTRICTS[district_of[n]]
        north, east = rng.normal(0.0, SPREAD_DEGREES, 2)
        first, second = rng.choice(ROADS_PER_DISTRICT, size=2, replace=False)
        made.append(
            Camera(
                index=n,
                ip=f"192.168.{district_of[n] + 1}.{n % 200 + 1}",
                checkpoint_id=f"{330101 + district_of[n]}#{n}#0#{n % 2}",
                district=name,
                roads=(f"road {chr(65 + first)}", f"road {chr(65 + second)}"),
                latitude=round(latitude + float(north), 5),
                longitude=round(longitude + float(east), 5),
                server=stations[server_of[n]] if n in server_of else None,
            )
        )
    return Deployment(tuple(made), tuple(stations), distances_km(made))


def distances_km(cameras: list[Camera]) -> Any:
    """Great-circle distances between all cameras."""
    at = np.radians(np.array([(c.latitude, c.longitude) for c in cameras]))
    north, east = at[:, 0][:, None], at[:, 1][:, None]
    half = (
        np.sin((north - north.T) / 2) ** 2
        + np.cos(north) * np.cos(north.T) * np.sin((east - east.T) / 2) ** 2
    )
    return 2 * EARTH_KM * np.arcsin(np.sqrt(half))
