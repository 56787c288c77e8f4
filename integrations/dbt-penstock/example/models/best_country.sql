{{ config(materialized='view') }}

select country, cents from {{ ref('country_totals') }} order by cents desc limit 1
