{#
  Penstock has no MERGE, so a snapshot is built anew with each run, beside the one that readers see: the rows before,
  those of changed and deleted keys with their end, and the new rows.
#}
{% materialization snapshot, adapter='penstock', supported_languages=['sql'] %}
  {%- set target_name = model.get('alias', model.get('name')) -%}
  {%- set unique_key = config.get('unique_key') -%}
  {% set exists, target = get_or_create_relation(
        database=model.database, schema=model.schema, identifier=target_name, type='table') -%}
  {%- if not target.is_table -%}
    {% do exceptions.relation_wrong_type(target, 'table') %}
  {%- endif -%}
  {{ run_hooks(pre_hooks) }}
  {% do adapter.refuse_streaming_job(target, False) %}
  {% set strategy_macro = strategy_dispatch(config.get('strategy')) %}
  {% set strategy = strategy_macro(model, 'snapshotted_data', 'source_data', model['config'], exists) %}
  {% set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() %}
  {% if not exists %}
    {% do penstock_build_table(target, build_snapshot_table(strategy, model['compiled_code'])) %}
  {% else %}
    {{ adapter.assert_valid_snapshot_target_given_strategy(target, columns, strategy) }}
    {% set staging = make_temp_relation(target) %}
    {% do run_query(create_table_as(True, staging, snapshot_staging_table(strategy, sql, target))) %}
    {% do penstock_build_table(target, penstock_snapshot_sql(target, staging, strategy, columns)) %}
    {% do drop_temporary_view(staging) %}
  {% endif %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro penstock_snapshot_sql(target, staging, strategy, columns) -%}
  {%- set technical = ['dbt_change_type', 'dbt_unique_key'] -%}
  {%- if strategy.unique_key is not string -%}
    {%- for key in strategy.unique_key %}{% do technical.append('dbt_unique_key_' ~ loop.index) %}{% endfor -%}
  {%- endif -%}
  {%- set old = adapter.get_columns_in_relation(target) | map(attribute='name') | list -%}
  {%- set new = adapter.get_columns_in_relation(staging) | rejectattr('name', 'in', technical) | list -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  {%- set new_names = new | map(attribute='name') | list -%}
  select
    {%- for name in old %}
    {% if name == columns.dbt_valid_to -%}
    case when dbt_changed.dbt_changed_id is null then dbt_old.{{ adapter.quote(name) }} else dbt_changed.dbt_changed_to end as {{ adapter.quote(name) }}
    {%- else -%}
    dbt_old.{{ adapter.quote(name) }}
    {%- endif %}{{ ',' if not loop.last }}
    {%- endfor %}
    {%- for column in new if column.name not in old %},
    cast(null as {{ column.data_type }}) as {{ column.quoted }}
    {%- endfor %}
  from {{ target.render() }} as dbt_old
  left join (
    select {{ columns.dbt_scd_id }} as dbt_changed_id, {{ columns.dbt_valid_to }} as dbt_changed_to
    from {{ staging.render() }} where dbt_change_type in ('update', 'delete')
  ) as dbt_changed
  on dbt_old.{{ columns.dbt_scd_id }} = dbt_changed.dbt_changed_id
  and (dbt_old.{{ columns.dbt_valid_to }} is null
    {%- if current %} or dbt_old.{{ columns.dbt_valid_to }} = {{ current }}{% endif %})
  union all
  select
    {%- for name in old %}
    {{ adapter.quote(name) if name in new_names else 'null' }}{{ ',' if not loop.last }}
    {%- endfor %}
    {%- for column in new if column.name not in old %},
    {{ column.quoted }}
    {%- endfor %}
  from {{ staging.render() }} where dbt_change_type = 'insert'
{%- endmacro %}

{% macro get_dbt_valid_to_current(strategy, columns) -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  {%- if current -%}
    coalesce(nullif({{ strategy.updated_at }}, {{ strategy.updated_at }}), {{ current }})
  {%- else -%}
    nullif({{ strategy.updated_at }}, {{ strategy.updated_at }})
  {%- endif %} as {{ columns.dbt_valid_to }}
{% endmacro %}
