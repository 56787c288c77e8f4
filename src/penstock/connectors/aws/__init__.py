"""Services of AWS: streams of Kinesis, Firehose, tables of DynamoDB, queues of SQS, and what they share (`client`)."""
