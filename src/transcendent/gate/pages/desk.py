"""The desk: where analysts see why objects wait, and label them."""

from fastapi import Request, Response

from transcendent.gate.pages.web import Visitor, page_router, render

router = page_router()


@router.get("/desk")
def desk(request: Request, _: Visitor) -> Response:
    """Show the queue."""
    return render(request, "desk.html", here="/desk")
