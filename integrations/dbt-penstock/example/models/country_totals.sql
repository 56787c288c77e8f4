{# A table, built anew with each run from what the job has written so far. #}
{{ config(materialized='table') }}

select cities.country, sum(totals.orders) as orders, sum(totals.cents) as cents
from {{ ref('city_totals') }} as totals
join {{ ref('cities') }} as cities on cities.city = totals.city
group by cities.country
