"""The benchmarks behind docs/performance.md: ``python -m tests.bench`` (``make bench``).

Figures are ratios between contestants that take turns on one machine; docs/performance.md says how to read
them.
"""
