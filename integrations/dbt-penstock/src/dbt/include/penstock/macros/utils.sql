{% macro penstock__dateadd(datepart, interval, from_date_or_timestamp) -%}
  timestampadd({{ datepart }}, {{ interval }}, cast({{ from_date_or_timestamp }} as timestamp(6)))
{%- endmacro %}

{% macro penstock__datediff(first_date, second_date, datepart) -%}
  {#- dbt counts the boundaries between both, TIMESTAMPDIFF whole units -#}
  {%- set unit = datepart | lower -%}
  {%- if unit in ('year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second') -%}
    timestampdiff({{ unit }}, {{ date_trunc(unit, first_date) }}, {{ date_trunc(unit, second_date) }})
  {%- else -%}
    timestampdiff({{ unit }}, cast({{ first_date }} as timestamp(6)), cast({{ second_date }} as timestamp(6)))
  {%- endif -%}
{%- endmacro %}

{% macro penstock__date_trunc(datepart, date) -%}
  floor(cast({{ date }} as timestamp(6)) to {{ datepart }})
{%- endmacro %}

{% macro penstock__hash(field) -%}
  md5(cast({{ field }} as string))
{%- endmacro %}

{% macro penstock__split_part(string_text, delimiter_text, part_number) -%}
  {%- if part_number >= 0 -%}
    split_index({{ string_text }}, {{ delimiter_text }}, {{ part_number - 1 }})
  {%- else -%}
    split_index({{ string_text }}, {{ delimiter_text }},
      cardinality(split({{ string_text }}, {{ delimiter_text }})) {{ part_number }})
  {%- endif -%}
{%- endmacro %}

{% macro penstock__any_value(expression) -%}
  max({{ expression }})
{%- endmacro %}

{% macro penstock__bool_or(expression) -%}
  (max(case when {{ expression }} then 1 else 0 end) = 1)
{%- endmacro %}

{% macro penstock__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- if order_by_clause or limit_num -%}
    {% do exceptions.raise_compiler_error('LISTAGG of Flink has no order and no limit') %}
  {%- endif -%}
  listagg({{ measure }}, {{ delimiter_text }})
{%- endmacro %}

{% macro penstock__safe_cast(field, type) -%}
  try_cast({{ field }} as {{ type }})
{%- endmacro %}

{% macro penstock__type_string() -%} string {%- endmacro %}
{% macro penstock__type_timestamp() -%} timestamp(6) {%- endmacro %}
{% macro penstock__type_float() -%} double {%- endmacro %}
{% macro penstock__type_numeric() -%} decimal(38, 18) {%- endmacro %}
{% macro penstock__type_bigint() -%} bigint {%- endmacro %}
{% macro penstock__type_int() -%} int {%- endmacro %}
{% macro penstock__type_boolean() -%} boolean {%- endmacro %}
