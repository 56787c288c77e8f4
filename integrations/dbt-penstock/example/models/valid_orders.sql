{{ config(materialized='view') }}

select id, city, cents, placed
from {{ source('raw', 'orders') }}
where cents > 0
