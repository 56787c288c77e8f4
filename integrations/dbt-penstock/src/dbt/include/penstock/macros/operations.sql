{# Declares the sources that have columns and `meta.penstock`: as on-run-start, or with dbt run-operation. #}
{% macro create_sources() -%}
  {%- if execute -%}
    {%- for source in graph.sources.values() -%}
      {% do adapter.declare_source(source) %}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro %}

{# Stops the job of a model with a savepoint: dbt run-operation stop_streaming_job --args 'model: totals' #}
{% macro stop_streaming_job(model) -%}
  {%- set nodes = graph.nodes.values() | selectattr('name', 'equalto', model) | list -%}
  {%- if not nodes -%}
    {% do exceptions.raise_compiler_error("there is no model '" ~ model ~ "'") %}
  {%- endif -%}
  {%- set node = nodes[0] -%}
  {%- set relation = api.Relation.create(database=node.database, schema=node.schema, identifier=node.alias) -%}
  {%- set savepoint = adapter.stop_streaming_job(relation) -%}
  {% do log('the job of ' ~ model ~ (' has stopped with ' ~ savepoint if savepoint else ' does not run'), info=True) %}
{%- endmacro %}
