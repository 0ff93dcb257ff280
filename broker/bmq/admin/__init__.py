"""Administration: commands as text or JSON, their effects on a node, and their results as text or JSON.

    line -> parse -> Command -> execute -> Result -> text | json_form -> answer

The commands, their results and the printed forms are the reference's (its schema `mqbcmd.xsd`). Nothing here does I/O:
`broker.bmq.admin.environment` supplies everything from outside.
"""
