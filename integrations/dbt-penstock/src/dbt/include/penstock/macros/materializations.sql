{% materialization view, adapter='penstock', supported_languages=['sql'] %}
  {%- set target = this.incorporate(type='view') -%}
  {{ run_hooks(pre_hooks) }}
  {% do adapter.refuse_streaming_job(target, should_full_refresh()) %}
  {%- set contract_config = config.get('contract') -%}
  {%- if contract_config and contract_config.enforced -%}
    {{ get_assert_columns_equivalent(sql) }}
  {%- endif -%}
  {%- set comment = (model.description | trim) if config.persist_relation_docs() else '' -%}
  {%- set statement_sql = adapter.replace_view(target, sql, comment) -%}
  {% call statement('main') -%}
    {{ statement_sql }}
  {%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{# Builds a table beside the one that readers see, and lets them see it when it is complete. #}
{% macro penstock_build_table(target, sql) -%}
  {%- if adapter.stores_tables(target) -%}
    {% call statement('main') -%}
      {{ create_table_as(False, target, sql) }}
    {%- endcall %}
  {%- else -%}
    {%- set connector = config.get('connector') or 'filesystem' -%}
    {%- if config.get('materialized') == 'table' and (connector != 'filesystem' or 'path' in (config.get('with') or {})) -%}
      {% do exceptions.raise_compiler_error(
        "a table of the connector '" ~ connector ~ "' with a place of its own cannot be replaced in one step: "
        "use 'incremental' or 'streaming_job', or leave the place to dbt"
      ) %}
    {%- endif -%}
    {%- set staging = target.incorporate(path={'identifier': target.identifier ~ '__dbt_new'}, type='table') -%}
    {% do run_query('drop table if exists ' ~ staging.render()) %}
    {% call statement('main') -%}
      {{ create_table_as(False, staging, sql) }}
    {%- endcall %}
    {% do adapter.publish(staging, target) %}
  {%- endif -%}
{%- endmacro %}


{% materialization table, adapter='penstock', supported_languages=['sql'] %}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {% do adapter.refuse_streaming_job(target, should_full_refresh()) %}
  {% do penstock_build_table(target, sql) %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{% materialization incremental, adapter='penstock', supported_languages=['sql'] %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set unique_key = config.get('unique_key') -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set strategy = config.get('incremental_strategy') or ('merge' if unique_key else 'append') -%}
  {% do adapter.get_incremental_strategy_macro(context, strategy) %}
  {{ run_hooks(pre_hooks) }}
  {% do adapter.refuse_streaming_job(target, should_full_refresh()) %}
  {%- if existing is none or existing.is_view or should_full_refresh() -%}
    {% do penstock_build_table(target, sql) %}
  {%- else -%}
    {%- set new = make_temp_relation(target) -%}
    {% do run_query(create_table_as(True, new, sql)) %}
    {%- set columns = adapter.get_columns_in_relation(target) -%}
    {%- set new_columns = adapter.get_columns_in_relation(new) | map(attribute='name') | list -%}
    {%- if on_schema_change != 'ignore' and (columns | map(attribute='name') | list) != new_columns -%}
      {% do exceptions.raise_compiler_error(
        'the columns of ' ~ target ~ ' have changed: run with --full-refresh. Columns of an incremental table are not '
        'added or removed otherwise'
      ) %}
    {%- endif -%}
    {%- set names = columns | map(attribute='quoted') | join(', ') -%}
    {%- if strategy == 'append' or not unique_key -%}
      {% call statement('main') -%}
        insert into {{ target.render() }} ({{ names }}) select {{ names }} from {{ new.render() }}
      {%- endcall %}
    {%- else -%}
      {%- set keys = [unique_key] if unique_key is string else unique_key -%}
      {% do penstock_build_table(target, penstock_merge_sql(target, new, names, keys)) %}
    {%- endif -%}
    {% do drop_temporary_view(new) %}
  {%- endif -%}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro penstock_merge_sql(target, new, names, keys) -%}
  select {{ names }} from {{ target.render() }} as dbt_old
  where not exists (
    select 1 from {{ new.render() }} as dbt_new
    where {% for key in keys %}dbt_new.{{ key }} = dbt_old.{{ key }}{{ ' and ' if not loop.last }}{% endfor %}
  )
  union all
  select {{ names }} from {{ new.render() }}
{%- endmacro %}

{% macro penstock__get_incremental_append_sql(arg_dict) -%}
  insert into {{ arg_dict['target_relation'].render() }} select * from {{ arg_dict['temp_relation'].render() }}
{%- endmacro %}


{% materialization seed, adapter='penstock' %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set existing = adapter.get_relation(database=database, schema=schema, identifier=model['alias']) -%}
  {%- if existing is not none and existing.is_view -%}
    {{ exceptions.raise_compiler_error("Cannot seed to '{}', it is a view".format(existing.render())) }}
  {%- endif -%}
  {%- set table = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=table) -%}
  {{ run_hooks(pre_hooks) }}
  {%- set overrides = model['config'].get('column_types', {}) -%}
  {%- set types = [] -%}
  {%- for name in table.column_names -%}
    {%- do types.append(overrides.get(name, adapter.convert_type(table, loop.index0))) -%}
  {%- endfor -%}
  {%- set staging = target if adapter.stores_tables(target) else
        target.incorporate(path={'identifier': target.identifier ~ '__dbt_new'}) -%}
  {% do run_query('drop table if exists ' ~ staging.render()) %}
  {% set create %}
    create table {{ staging.render() }} (
      {%- for name in table.column_names %}
      {{ adapter.quote(name) }} {{ types[loop.index0] }}{{ ',' if not loop.last }}
      {%- endfor %}
    ) {{ penstock_comment() }} {{ adapter.table_options(target, config.get('connector'), config.get('with')) }}
  {% endset %}
  {% do run_query(create) %}
  {%- set inserts = adapter.insert_statements(staging, table, types) -%}
  {%- for insert in inserts -%}
    {% do adapter.add_query(insert, abridge_sql_log=True) %}
  {%- endfor -%}
  {%- if staging != target -%}
    {% do adapter.publish(staging, target) %}
  {%- endif -%}
  {%- set rows = table.rows | length -%}
  {% call noop_statement('main', 'INSERT ' ~ rows, 'INSERT', rows) %}
    {{ create }};
    {{ inserts[0] if inserts }}
  {% endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{% materialization streaming_job, adapter='penstock', supported_languages=['sql'] %}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {%- set comments = {} -%}
  {%- if config.persist_column_docs() -%}
    {%- for name, column in model.columns.items() if column.description -%}
      {%- do comments.update({name: column.description | trim}) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- set settings = {
    'connector': config.get('connector'),
    'with': config.get('with'),
    'job_options': config.get('job_options'),
    'primary_key': config.get('primary_key'),
    'partitioned_by': config.get('partitioned_by'),
    'comment': (model.description | trim) if config.persist_relation_docs() else '',
    'comments': comments,
  } -%}
  {%- set done = adapter.run_streaming_job(target, sql, settings, should_full_refresh()) -%}
  {% call noop_statement('main', done, 'OK', none) %}
    {{ sql }}
  {% endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
