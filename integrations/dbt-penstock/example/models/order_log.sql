{# Each order once, in files that become visible with a checkpoint. #}
{{ config(materialized='streaming_job', job_options={'execution.checkpointing.interval': '1 s'}) }}

select id, upper(city) as city, cents
from {{ ref('valid_orders') }}
