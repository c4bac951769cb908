"""The differential driver: the same raw requests to this broker and to Apache Kafka, compared field by field."""
