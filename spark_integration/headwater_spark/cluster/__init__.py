"""Brokers as Spark jobs: `Cluster.start(spark, brokers=3)`."""
