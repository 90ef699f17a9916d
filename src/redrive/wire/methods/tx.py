"""tx.*: a channel on which publishes and acks take effect together, at the commit."""

from redrive.wire.methods.codec import CLIENT, SERVER, Method, method


@method(0x005A000A, CLIENT)
class TxSelect(Method):
    """tx.select"""


@method(0x005A000B, SERVER)
class TxSelectOk(Method):
    """tx.select-ok"""


@method(0x005A0014, CLIENT)
class TxCommit(Method):
    """tx.commit"""


@method(0x005A0015, SERVER)
class TxCommitOk(Method):
    """tx.commit-ok"""


@method(0x005A001E, CLIENT)
class TxRollback(Method):
    """tx.rollback"""


@method(0x005A001F, SERVER)
class TxRollbackOk(Method):
    """tx.rollback-ok"""
