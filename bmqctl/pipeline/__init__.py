"""Stores as tables: a PySpark data source over journals, and the jobs that write them to Parquet.

Needs the extra `spark`; nothing else in bmqctl imports pyspark, and the modules here that do not need it
(`java`, `stores`, `queues`) do without.
"""
