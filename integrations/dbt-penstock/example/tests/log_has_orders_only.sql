{# Each order of the log is one of the topic, which is read up to its end. #}
select log.id
from {{ ref('order_log') }} as log
left join {{ source('raw', 'orders') }} as orders on orders.id = log.id
where orders.id is null
