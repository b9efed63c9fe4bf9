from headwater.client.admin.client import Admin as Admin
from headwater.client.consumer import Consumer as Consumer
from headwater.client.producer import Producer as Producer
from headwater.client.values import NewTopic as NewTopic
from headwater.client.values import TopicPartition as TopicPartition

__version__: str
__all__ = ["Admin", "Consumer", "NewTopic", "Producer", "TopicPartition", "__version__"]
