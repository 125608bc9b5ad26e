"""The command about campaigns of the gate."""

from typing import Any

from transcendent._utils.text import counted, some
from transcendent.cli import showing
from transcendent.cli.options import AsJson, Database


def campaigns(database: Database = None, as_json: AsJson = False) -> None:
    """List the campaigns that wait, those with the most items for each look first."""
    from transcendent.gate.campaign_labels import CampaignLabels
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine:
        found = CampaignLabels(engine, settings.opinions).list()
    text = "\n\n".join(map(_in_words, found)) or "no campaigns wait."
    showing.show(text, {"campaigns": found}, as_json)


def _in_words(campaign: dict[str, Any]) -> str:
    labels = some([f"{label}: {n}" for label, n in campaign["labels"].items()])
    unlike = f"; {campaign['unlike']} that say nothing" if campaign["unlike"] else ""
    return showing.lines(
        campaign=campaign["id"],
        waiting=f"{counted(campaign['waiting'], 'item')}, copies among them",
        contents=f"{campaign['contents']:,}: items with the same features are one content",
        opened=f"{campaign['opened']} of {campaign['needed']}" + (f" ({labels})" if labels else "") + unlike,
        described=campaign["described"]["sentence"],
        can_be=campaign["label"] and f"labelled {campaign['label']} ({campaign['proves']})",
        missing=campaign["missing"],
    )
