{# What each minute took, in another topic. #}
{{ config(
    materialized='streaming_job',
    connector='kafka',
    with={
      'properties.bootstrap.servers': env_var('KAFKA', 'localhost:9092'),
      'properties.group.id': 'shop-minutes',
      'topic': 'minute-takings',
      'format': 'json',
      'scan.startup.mode': 'earliest-offset',
      'properties.isolation.level': 'read_committed',
      'properties.transaction.timeout.ms': '900000',
      'sink.delivery-guarantee': 'exactly-once',
      'sink.transactional-id-prefix': 'shop-minutes',
    },
    job_options={'execution.checkpointing.interval': '1 s'},
) }}

select window_start as minute_start, count(*) as orders, sum(cents) as cents
from table(tumble(table {{ ref('valid_orders') }}, descriptor(placed), interval '1' minute))
group by window_start, window_end
