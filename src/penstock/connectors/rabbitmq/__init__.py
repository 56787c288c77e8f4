"""RabbitMQ: sources of queues and streams (`source`), a sink with confirms (`sink`), and connections (`client`)."""
