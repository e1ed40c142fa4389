import pytest
from memory.store_contract import StoreContract

from ouro.memory.ephemeral_backend import DictMemoryStore


class TestDictMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return DictMemoryStore()

    @pytest.fixture
    def again(self, store):
        return lambda: store
