from headwater.client.serializers.models import ModelSerializer as ModelSerializer
from headwater.client.serializers.plain import JsonSerializer as JsonSerializer
from headwater.client.serializers.plain import StringSerializer as StringSerializer
from headwater.client.serializers.values import BytesSerializer as BytesSerializer
from headwater.client.serializers.values import Context as Context
from headwater.client.serializers.values import OptionalSerializer as OptionalSerializer
from headwater.client.serializers.values import Serializer as Serializer
from headwater.client.serializers.values import optional as optional
from headwater_tier.serializers.avro import AvroSerializer as AvroSerializer
from headwater_tier.serializers.json_schema import JsonSchemaSerializer as JsonSchemaSerializer
from headwater_tier.serializers.protobuf import ProtobufSerializer as ProtobufSerializer
from headwater_tier.serializers.registry import SchemaRegistry as SchemaRegistry

EXPORTS: dict[str, str]
