"""A server with the shapes of Flink's REST API and made-up jobs, to develop and to test the page against.

    python -m tests.server.page.mock --port 8081 --wide 1000

Its figures follow from the clock, so that rates move and totals agree with them; what is asked of a job changes it.
"""
