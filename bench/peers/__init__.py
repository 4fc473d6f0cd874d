"""One module a loader. Each runs in its own virtual environment and hands its batches to bench.consumer."""
