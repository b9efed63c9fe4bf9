"""Brokers that run as Spark jobs: `Cluster.start(spark, brokers=3)`."""
