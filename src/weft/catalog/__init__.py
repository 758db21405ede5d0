"""Who there is and what they may do: orgs, users, the roles of orgs, tokens."""
