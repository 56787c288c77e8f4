"""MQTT 5: a source of subscriptions with sessions, and a sink of acknowledged publishes."""

from penstock.connectors.mqtt import MqttMessage, MqttPublication, MqttSink, MqttSource

__all__ = ["MqttMessage", "MqttPublication", "MqttSink", "MqttSource"]
