"""The rig: real RabbitMQ of several versions for the tests, on loopback, gone when the tests are.

From below: `versions` knows what can be had and what is here, `build` (with `apt`, `privilege`) makes it so; `run` is
one run of the rig, whose `keeper` starts every process and ends it whatever happens; `config` says what a `node` is
started with, `cluster` joins several; `external` are brokers somebody else runs. `offer` is what there is to test on,
`shared` the nodes a test run shares, `postgres` a database server, `tally` how it went on which version, `workers`
which tests stay together when several run at once, and `pytest_plugin` hands all that to tests:

    @pytest.mark.live
    def test_a_queue_is_declared(vhost: Vhost) -> None: ...
"""

from rig.brokers import Broker, Vhost, clean_vhost
from rig.cluster import Cluster
from rig.config import Tls
from rig.errors import ManagementRefused, NodeFailed, RigError
from rig.management import Management
from rig.node import Node
from rig.postgres import Postgres
from rig.shared import OwnNodes

__all__ = [
    "Broker",
    "Cluster",
    "Management",
    "ManagementRefused",
    "Node",
    "NodeFailed",
    "OwnNodes",
    "Postgres",
    "RigError",
    "Tls",
    "Vhost",
    "clean_vhost",
]
