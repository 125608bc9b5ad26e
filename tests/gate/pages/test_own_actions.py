"""What is taken back and given back on the desk, without a browser."""

from types import SimpleNamespace

import pytest

from tests.gate.test_campaigns import campaigns, family, open_members, quarantine, regroup, send  # noqa: F401
from tests.gate.test_quarantine import rows
from transcendent.gate.access import Caller
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.intake import keep
from transcendent.gate.pages.desk import label_campaign
from transcendent.gate.pages.own_actions import take_back
from transcendent.gate.quarantine import ConflictError, Quarantine


def test_an_undo_is_done_though_the_item_cannot_be_held(own_engine):
    items = Quarantine(own_engine, max_held=1)
    keep(own_engine, rows(own_engine, [0.1, 0.2]))
    first, second = (each["id"] for each in [*items.claim("ann").items, *items.claim("bob").items])
    items.resolve("ann", first, "malware")
    items.release("bob")
    items.take("ann", second)
    given = own_engine, items, CampaignLabels(own_engine), Caller("ann", "analyst")
    assert take_back(*given, f"item:{first}") == (first, 1)
    assert [each["id"] for each in items.held("ann")] == [second]
    assert not items.show(first)["labelled"]


def test_the_open_item_stays_ones_own_if_its_campaign_cannot_be_labelled(quarantine, campaigns, send):  # noqa: F811
    send(family(5))
    [found] = campaigns.list()
    [item] = quarantine.claim("ann", campaign=found["id"]).items
    desk = SimpleNamespace(who="ann", quarantine=quarantine, campaigns=campaigns)
    form = {"all": "malware", "item": str(item["id"])}
    with pytest.raises(ConflictError, match="0 of 3 are opened"):
        label_campaign(desk, found["id"], form)
    assert [each["id"] for each in quarantine.held("ann")] == [item["id"]]
    quarantine.release("ann")
    open_members(quarantine, found["id"])
    [item] = quarantine.claim("ann", campaign=found["id"]).items
    label_campaign(desk, found["id"], form | {"item": str(item["id"])})
    assert campaigns.list() == []
