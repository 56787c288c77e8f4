{% macro penstock__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if language != 'sql' -%}
    {% do exceptions.raise_compiler_error('models of Penstock are written in SQL, not in ' ~ language) %}
  {%- endif -%}
  {%- if temporary -%}
    {% do drop_temporary_view(relation) %}
    create temporary view {{ relation.render() }} as
    {{ compiled_code }}
  {%- else -%}
    {%- set contract_config = config.get('contract') -%}
    {%- if contract_config and contract_config.enforced -%}
      {{ get_assert_columns_equivalent(compiled_code) }}
    {%- endif -%}
    {%- set partitions = config.get('partitioned_by') or [] -%}
    create {{ 'or replace ' if adapter.stores_tables(relation) }}table {{ relation.render() }}
    {{ penstock_comment() }}
    {%- if partitions %}
    partitioned by ({% for name in ([partitions] if partitions is string else partitions) %}{{ adapter.quote(name) }}{{ ', ' if not loop.last }}{% endfor %})
    {%- endif %}
    {{ adapter.table_options(penstock_target(relation), config.get('connector'), config.get('with')) }}
    as {{ compiled_code }}
  {%- endif -%}
{%- endmacro %}

{# The rows of a table that is being built lie where those of the finished one do. #}
{% macro penstock_target(relation) -%}
  {{ return(relation.incorporate(path={'identifier': relation.identifier.removesuffix('__dbt_new')})) }}
{%- endmacro %}

{% macro penstock_comment() -%}
  {%- if config.persist_relation_docs() and model.description -%}
    comment '{{ model.description | trim | replace("'", "''") }}'
  {%- endif -%}
{%- endmacro %}

{% macro drop_temporary_view(relation) -%}
  {% do run_query('drop temporary view if exists ' ~ relation.render()) %}
{%- endmacro %}

{% macro penstock__create_view_as(relation, sql) -%}
  {%- set contract_config = config.get('contract') -%}
  {%- if contract_config and contract_config.enforced -%}
    {{ get_assert_columns_equivalent(sql) }}
  {%- endif -%}
  create view {{ relation.render() }} as
  {{ sql }}
{%- endmacro %}

{% macro penstock__drop_schema(relation) -%}
  {% do adapter.drop_schema(relation) %}
{%- endmacro %}

{% macro penstock__create_schema(relation) -%}
  {% do adapter.create_schema(relation) %}
{%- endmacro %}

{% macro penstock__current_timestamp() -%}
  current_timestamp
{%- endmacro %}

{% macro penstock__snapshot_get_time() -%}
  cast(current_timestamp as timestamp(6))
{%- endmacro %}

{% macro penstock__snapshot_string_as_time(timestamp) -%}
  {{ return("timestamp '" ~ timestamp ~ "'") }}
{%- endmacro %}

{% macro penstock__snapshot_hash_arguments(args) -%}
  md5({%- for arg in args -%}
    coalesce(cast({{ arg }} as string), '') {%- if not loop.last %} || '|' || {% endif %}
  {%- endfor -%})
{%- endmacro %}

{% macro penstock__get_columns_in_query(select_sql) -%}
  {{ return(adapter.get_column_schema_from_query(select_sql) | map(attribute='name') | list) }}
{%- endmacro %}

{# Comments are part of the declarations. #}
{% macro penstock__persist_docs(relation, model, for_relation, for_columns) -%}
{%- endmacro %}

{% macro penstock__alter_column_type(relation, column_name, new_column_type) -%}
  {% do exceptions.raise_compiler_error('the type of a column changes with a full refresh: ' ~ relation) %}
{%- endmacro %}

{% macro penstock__get_show_grant_sql(relation) -%}
  {% do exceptions.raise_compiler_error('Penstock has no grants: remove them from the model') %}
{%- endmacro %}

{% macro penstock__copy_grants() -%}
  {{ return(False) }}
{%- endmacro %}

{% macro penstock__get_catalog_for_single_relation(relation) -%}
  {% do exceptions.raise_not_implemented('get_catalog_for_single_relation is not implemented for Penstock') %}
{%- endmacro %}
