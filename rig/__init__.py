"""The rig: real RabbitMQ of several versions for the tests, on loopback, gone when the tests are.

From below: `versions` knows which versions exist and which are installed, `build` (with `apt`, `privilege`) installs
them; `process_group` is all processes of one test run, which its `supervisor` starts, and ends whatever happens;
`node_config` is what a `node` is started with, `cluster` joins several; `external_brokers` are brokers that run
already. `available_brokers` lists what there is to test on, `node_pool` holds the nodes that tests share or have for
themselves, `postgres` is a database server, `version_summary` counts the results by version, `xdist_groups` keeps the
tests of one broker on one worker, and `pytest_plugin` has the fixtures:

    @pytest.mark.live
    def test_a_queue_is_declared(vhost: Vhost) -> None: ...

`dlq_operator`, `serve_process`, `ladder_app` and `ladder_clients` are scenarios that several tests and benchmarks run.
"""

from rig.brokers import Broker, Vhost, clean_vhost
from rig.cluster import Cluster
from rig.errors import ManagementRefused, NodeFailed, RigError
from rig.management import Management
from rig.node import Node
from rig.node_config import Tls
from rig.node_pool import OwnNodes
from rig.postgres import Postgres

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
