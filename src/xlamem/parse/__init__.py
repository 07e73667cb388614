"""From bytes to tables: native scanning of a dump's sections and assembly of Arrow tables."""
