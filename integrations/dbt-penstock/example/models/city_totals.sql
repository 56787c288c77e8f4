{# The takings of each city so far, in PostgreSQL. #}
{{ config(
    materialized='streaming_job',
    connector='jdbc',
    with={
      'url': env_var('POSTGRES', 'postgresql://postgres@localhost:5433/postgres'),
      'table-name': 'city_totals',
      'sink.delivery-guarantee': 'exactly-once',
    },
    primary_key='city',
    job_options={'execution.checkpointing.interval': '1 s'},
) }}

select city, count(*) as orders, sum(cents) as cents
from {{ ref('valid_orders') }}
group by city
