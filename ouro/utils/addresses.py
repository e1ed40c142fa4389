"""URLs that may be invalid, and which addresses are on the internet."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure: metadata and keys of the machine
            "192.0.0.0/24",  # Oracle's metadata; no web server has the public ones, .9 and .10
            "192.88.99.0/24",  # relays of 6to4
            "192.31.196.0/24",  # AS112, as the next two
            "192.175.48.0/24",
            "2620:4f:8000::/48",
            "2001:4:112::/48",
            "3fff::/20",  # documentation
            "64:ff9b:1::/48",  # NAT64 of a local network
        ),
    )
)
"""Special addresses that Python's tables call global."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""Addresses of IPv6 that a gateway translates to the address of IPv4 in their last 32 bits."""


def split_url(url: str) -> SplitResult:
    """Returns the parts of a URL. All of them are empty if it is not valid, such as `http://[host]/`:
    `urlsplit` raises ValueError then.
    """
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def is_on_internet(address: str) -> bool:
    """Whether an address is public: no address of this machine or of a local network, and no
    special one.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])  # `fe80::1%eth0` names an interface
    if ip in _NAT64:
        ip = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    # If an address of IPv6 has one of IPv4 in it, the packets go to that one.
    target = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None) or ip
    is_special = any(target in network for network in _NOT_PUBLIC)
    return target.is_global and not target.is_multicast and not is_special
