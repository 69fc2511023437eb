"""Real kernels on a real GPU: right to the bit, bounded in memory, and quick to launch.

``python -m benchmarks.gpu`` runs everything in fresh processes and prints one table.
"""
