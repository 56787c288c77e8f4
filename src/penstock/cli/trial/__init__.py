"""Local servers to try Penstock with: `penstock try kafka`, `postgres`, `mysql`, `redis` and `opensearch`.

They are real servers, small, on the loopback interface, and delete their data when they end. The tests use them too.
"""
