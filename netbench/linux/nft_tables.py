"""Whether anybody but netbench has rules in a network namespace: the tables of nftables, asked of the kernel itself.

Formats: linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h.
"""

import errno
import socket

from netbench.linux.raw_netlink import ask, attributes
from netbench.model.names import PREFIX

_NETLINK_NETFILTER = 12
_NFT_MSG_GETTABLE = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES
_ANY_FAMILY = bytes(4)  # nfgenmsg
_NFTA_TABLE_NAME = 1
_WITHOUT_NFTABLES = (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL)


def has_foreign_tables() -> bool:
    """Whether nftables has a table here that is not netbench's own; also what iptables-nft makes."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as asked:
            tables = [
                attributes(answer[len(_ANY_FAMILY) :])[_NFTA_TABLE_NAME]
                for answer in ask(asked, _NFT_MSG_GETTABLE, _ANY_FAMILY, all_of_them=True)
            ]
    except OSError as error:
        # A kernel without nftables has no tables; one that cannot say so now may have some.
        return error.errno not in _WITHOUT_NFTABLES
    return any(not name.startswith(PREFIX.encode()) for name in tables)
