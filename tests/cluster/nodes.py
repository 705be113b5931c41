"""A Ray cluster of two nodes on this machine, on the loopback interface alone: `python nodes.py TOKEN CORES_A_NODE`.

Prints its address; "kill" on standard input kills the second node, and the end of standard input ends it all.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

from shoal.vector.workers.ray_instance import LOOPBACK, _on_loopback

if __name__ == "__main__":
    node = {"num_cpus": int(sys.argv[2]), "node_ip_address": LOOPBACK, "object_store_memory": 80 << 20}
    with _on_loopback(sys.argv[1]):
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            other = cluster.add_node(**node)
            cluster.wait_for_nodes()
            print(cluster.address, flush=True)
            for line in sys.stdin:
                if line.strip() == "kill":
                    cluster.remove_node(other, allow_graceful=False)
                    print("killed", flush=True)
        finally:
            cluster.shutdown()
