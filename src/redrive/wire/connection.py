"""One end of an AMQP connection, without the connection: bytes in, events out; calls in, bytes out.

    connection = Connection(Role.CLIENT)
    connection.send_protocol_header()
    transport.write(connection.data_to_send())
    for event in connection.receive_data(transport.read()):
        ...                                     # may call connection.send, publish, ack …
    transport.write(connection.data_to_send())

The caller owns transport, clock and credentials. The connection owns what AMQP says about order: it refuses to send
what is not allowed now, and stops when the peer does what is not allowed.
"""

from collections.abc import Iterator

from redrive.wire.errors import RemoteProtocolError
from redrive.wire.events import Event
from redrive.wire.methods import ConnectionTune
from redrive.wire.roles import Role
from redrive.wire.scan import Scanning
from redrive.wire.states import ConnectionState


class Connection(Scanning):
    """One end, in either role.

    `Connection(role, limits)`, with `Limits()` by default. Attributes to read: `role`, `state`, `limits`; once tuned,
    `channel_max`, `frame_max`, `heartbeat_s`; `blocked`, the reason while the broker blocks publishers, else None.
    """

    def receive_data(self, data: bytes) -> Iterator[Event]:
        """Take in bytes from the transport and iterate over what they say.

        Each event is parsed when it is asked for, in the state that the handling of the one before has left: a server
        that answers a publish with channel.close sees no more of that channel. An iterator left unfinished loses
        nothing; the rest comes with the next call.

        Raises RemoteProtocolError, from the iteration, after all events before the offence. `data_to_send` then holds
        the answer. Whatever is received afterwards is discarded, but for close-ok. What followed the offence in `data`
        is looked at in the next call.
        """
        if self.state is ConnectionState.CLOSED:
            return iter(())
        self._splitter.feed(data)
        return self._scan_client() if self.role is Role.CLIENT else self._scan_server()

    def answer_tune(self, tune: ConnectionTune) -> None:
        """Client: queue the tune-ok that our limits make of the server's offer, and live by it.

        Raises RemoteProtocolError, with connection.close queued, if the offer is one that AMQP does not allow.
        """
        try:
            answer = self.limits.answer(tune)
        except RemoteProtocolError as error:
            self._give_up(error)
            raise
        self.send(0, answer)

    @property
    def is_open(self) -> bool:
        return self.state is ConnectionState.OPEN
